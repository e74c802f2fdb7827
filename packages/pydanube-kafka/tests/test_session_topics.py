"""A fetch session looks only at partitions that may have changed."""

from __future__ import annotations

import pytest

from pydanube.model.policy import Start
from pydanube_kafka.pure.fetch_sessions import Wanted
from pydanube_kafka.session_topics import SessionTopics
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.readers import publish

PARTITIONS = [("orders", number) for number in range(3)]
WANTED = dict.fromkeys(PARTITIONS, Wanted(0, 1000))
ALICE = "alice"


@pytest.fixture
async def broker():
    async with BrokerWorld().broker() as broker:
        yield broker


@pytest.fixture
async def topics(broker):
    await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE)
    return [await broker.topics.get(A_TOPIC.partition(each)) for each in range(3)]


async def test_partitions_are_looked_at_once_and_then_when_they_change(broker, topics):
    session = SessionTopics(broker)
    assert session.take_due(WANTED, WANTED, ALICE) == PARTITIONS
    for partition, topic in zip(PARTITIONS, topics, strict=True):
        session.watch(partition, topic)
    assert session.take_due(WANTED, (), ALICE) == []
    await publish(topics[1], b"x")
    assert session.has_news.is_set()
    assert session.take_news(WANTED) == [PARTITIONS[1]]
    assert session.take_due(WANTED, [PARTITIONS[2]], ALICE) == [
        PARTITIONS[2],
        PARTITIONS[1],
    ]
    assert session.take_due(WANTED, (), ALICE) == []
    # What is noted comes before what changes later, and only while it is wanted.
    session.note(PARTITIONS[2])
    session.note(PARTITIONS[0])
    await broker.topics.trim(topics[1].name, Start.LATEST)
    assert session.take_due(WANTED, (), ALICE) == [
        PARTITIONS[2],
        PARTITIONS[0],
        PARTITIONS[1],
    ]
    session.note(PARTITIONS[0])
    assert session.take_due({}, (), ALICE) == []
    # Other permissions may allow less.
    assert session.take_due(WANTED, (), "bob") == PARTITIONS


async def test_topics_that_go_are_looked_at_and_not_followed(broker, topics):
    session = SessionTopics(broker)
    session.take_due(WANTED, WANTED, ALICE)
    for partition, topic in zip(PARTITIONS, topics, strict=True):
        session.watch(partition, topic)
        session.watch(partition, topic)
    session.forget(PARTITIONS[:1])
    await broker.topics.delete(A_TOPIC, force=True)
    due = session.take_due(WANTED, (), ALICE)
    assert sorted(due) == PARTITIONS[1:]
    for partition in due:
        session.watch(partition, None)
    assert session.take_due(WANTED, (), ALICE) == []


async def test_both_names_of_a_topic_are_looked_at_when_it_changes(broker, topics):
    session, name = SessionTopics(broker), ("default.orders", 0)
    wanted = WANTED | {name: WANTED[PARTITIONS[0]]}
    session.take_due(wanted, wanted, ALICE)
    for each in (PARTITIONS[0], name):
        session.watch(each, topics[0])
    await publish(topics[0], b"x")
    session.take_due(wanted, (), ALICE)
    await broker.topics.trim(topics[0].name, Start.LATEST)
    assert sorted(session.take_due(wanted, (), ALICE)) == [name, PARTITIONS[0]]
    session.forget([name])
    await broker.topics.delete(A_TOPIC, force=True)
    assert session.take_due(WANTED, (), ALICE) == PARTITIONS[:1]


async def test_a_closed_session_leaves_no_watchers(broker, topics):
    session = SessionTopics(broker)
    for partition, topic in zip(PARTITIONS, topics, strict=True):
        session.watch(partition, topic)
    session.close()
    session.watch(PARTITIONS[0], topics[0])
    await publish(topics[0], b"x")
    assert not session.has_news.is_set()
