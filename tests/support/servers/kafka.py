"""Kafka brokers for tests: those in memory that librdkafka brings for tests."""

from __future__ import annotations

from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

TIMEOUT_S = 30
PARTITIONS = 4
"""Each topic has this number of partitions."""


@contextmanager
def kafka_in_memory():
    """Run one broker in this process during the body; yields its address."""
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
    [broker] = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    try:
        yield f"{broker.host}:{broker.port}"
    finally:
        owner.flush(0)
        del owner


def produce(servers, topic, messages, *, partition=0):
    """Publish (key, value) pairs, each with a header; -1: partitioned by key."""
    producer = Producer({"bootstrap.servers": servers})
    for key, value in messages:
        producer.produce(
            topic,
            value=value,
            key=key,
            headers={"source": b"test"},
            partition=partition,
        )
    assert producer.flush(TIMEOUT_S) == 0


def consume(servers, topic, count):
    """Return the first *count* messages of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "test",
        }
    )
    facts = consumer.list_topics(topic, TIMEOUT_S).topics[topic]
    consumer.assign([TopicPartition(topic, each, 0) for each in facts.partitions])
    found = []
    try:
        while len(found) < count:
            found += consumer.consume(count - len(found), 1.0)
    finally:
        consumer.close()
    return found
