"""The Python client of the original Danube works with a pydanube broker."""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from itertools import count

import pytest

import pydanube.sync
from support.project import ROOT
from support.servers.danube_client import (
    ClientFailed,
    DanubeClient,
    client_python,
    encoded,
    payloads,
)
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def client(broker):
    with DanubeClient(broker.grpc_url) as client:
        yield client


@pytest.fixture
def second(broker):
    """Another process with a client."""
    with DanubeClient(broker.grpc_url) as client:
        yield client


@pytest.fixture
def topic():
    return f"/default/topic{next(_numbers)}"


def numbers(messages) -> list[int]:
    return [int(payload) for payload in payloads(messages)]


def create(client, topic, **options) -> None:
    """A producer called p, and with it the topic."""
    client.create_producer(name="p", topic=topic, **options)


# Publishing and receiving.


def test_message_arrives_as_it_was_sent(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    attributes = {"colour": "blue", "größe": "ü"}
    client.send(producer="p", payload=encoded("hello"), attributes=attributes)
    [message] = client.receive(consumer="c", count=1)
    assert message == {
        "at": 0,
        "payload": encoded("hello"),
        "attributes": attributes,
        "key": None,
        "has_schema": False,
        "schema": [0, 0],
        "producer": "p",
        "topic": topic,
        "offset": 0,
    }


def test_messages_of_a_non_reliable_topic_arrive(client, topic):
    create(client, topic, reliable=False)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    receiving = client.start("receive", consumer="c", count=20)
    client.send_each(producer="p", first=0, end=20)
    assert numbers(receiving.result()) == list(range(20))


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024])
def test_payloads_of_all_sizes_arrive(client, topic, size):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    sent = [bytes([n]) * size for n in range(3)]
    for payload in sent:
        client.send(producer="p", payload=encoded(payload))
    assert payloads(client.receive(consumer="c", count=3)) == sent


def test_many_messages_sent_at_once_arrive_once_each(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    receiving = client.start("receive", consumer="c", count=500)
    client.send_at_once(producer="p", first=0, end=500)
    received = receiving.result()
    assert sorted(numbers(received)) == list(range(500))
    assert [message["offset"] for message in received] == list(range(500))


def test_native_clients_and_clients_of_danube_understand_each_other(
    broker, client, topic
):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    with pydanube.sync.connect(broker.url) as native:
        with native.producer(topic, name="native") as producer:
            producer.send("from native", key="k", attributes={"a": "b"})
            producer.send("binary key", key=b"\xff")
        first, other = client.receive(consumer="c", count=2)
        client.send(
            producer="p", payload=encoded("x"), attributes={"c": "d"}, key="key"
        )
        with native.consumer(
            topic, subscription="n", type="shared", start="earliest"
        ) as consumer:
            received = [consumer.receive(timeout_s=60) for _ in range(3)]
    assert (first["key"], first["attributes"]) == ("k", {"a": "b"})
    assert first["producer"] == "native"
    assert (other["key"], other["attributes"]) == (
        None,
        {"x-routing-key-base64": "/w=="},
    )
    message = received[2]
    assert (message.key, message.attributes) == ("key", {"c": "d"})
    assert message.producer == "p"


# Partitions.


def test_messages_go_to_partitions_round_robin_and_keys_stay_together(client, topic):
    create(client, topic, partitions=3)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=30)
    by_topic = Counter(each["topic"] for each in client.receive(consumer="c", count=30))
    assert by_topic == {f"{topic}-part-{number}": 10 for number in range(3)}

    for number in range(20):
        key = f"key{number % 5}"
        client.send(producer="p", payload=encoded("x"), key=key)
    topics = defaultdict(set)
    for message in client.receive(consumer="c", count=20):
        topics[message["key"]].add(message["topic"])
    assert all(len(each) == 1 for each in topics.values())


def test_partitions_have_an_order_and_offsets_of_their_own(client, topic):
    create(client, topic, partitions=2)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=40)
    received = client.receive(consumer="c", count=40)
    for number in range(2):
        mine = [each for each in received if each["topic"].endswith(f"-{number}")]
        assert [each["offset"] for each in mine] == list(range(20))
        assert numbers(mine) == sorted(numbers(mine))


# Acknowledging.


def test_only_unacknowledged_messages_are_redelivered(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=10)
    received = client.receive(consumer="c", count=10, acks=False)
    for message in received[:7]:
        client.ack(consumer="c", at=message["at"])
    client.close_consumer(name="c")
    client.subscribe(name="c2", topic=topic, subscription="s", type="EXCLUSIVE")
    assert numbers(client.receive(consumer="c2", count=3)) == [7, 8, 9]


def test_nacked_message_is_redelivered(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    client.send_each(producer="p", first=0, end=3)
    received = client.receive(consumer="c", count=3, acks=False)
    client.nack(consumer="c", at=received[1]["at"], delay_ms=1, reason="not today")
    client.ack(consumer="c", at=received[0]["at"])
    client.ack(consumer="c", at=received[2]["at"])
    [again] = client.receive(consumer="c", count=1)
    assert (numbers([again]), again["offset"]) == ([1], 1)


def test_each_subscription_gets_every_message(client, topic):
    create(client, topic)
    for name in ("one", "two"):
        client.subscribe(name=name, topic=topic, subscription=name, type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=10)
    for name in ("one", "two"):
        assert numbers(client.receive(consumer=name, count=10)) == list(range(10))


# Types of subscriptions.


def test_second_consumer_of_an_exclusive_subscription_is_refused(client, second, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    with pytest.raises(ClientFailed, match="can't be shared with other consumers"):
        second.subscribe(name="d", topic=topic, subscription="s", type="EXCLUSIVE")


def test_exclusive_subscription_is_free_when_its_consumer_has_gone(
    client, second, topic
):
    create(client, topic)
    second.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=5)
    assert len(second.receive(consumer="c", count=5, acks=False)) == 5
    second.kill()
    subscribed_after(client, name="d", topic=topic, subscription="s", type="EXCLUSIVE")
    assert numbers(client.receive(consumer="d", count=5)) == list(range(5))


@pytest.mark.parametrize("reliable", [True, False])
def test_shared_consumers_get_the_same_number_each(client, topic, reliable):
    create(client, topic, reliable=reliable)
    names = ("one", "two", "three")
    for name in names:
        client.subscribe(name=name, topic=topic, subscription="s", type="SHARED")
    receiving = [client.start("receive", consumer=name, count=12) for name in names]
    client.send_each(producer="p", first=0, end=36)
    received = [each.result() for each in receiving]
    assert [len(each) for each in received] == [12, 12, 12]
    assert sorted(n for each in received for n in numbers(each)) == list(range(36))


def test_standby_takes_over_from_the_active_consumer(client, second, topic):
    create(client, topic)
    second.subscribe(name="active", topic=topic, subscription="s", type="FAILOVER")
    client.subscribe(name="standby", topic=topic, subscription="s", type="FAILOVER")
    client.send_each(producer="p", first=0, end=10)
    assert len(second.receive(consumer="active", count=10, acks=False)) == 10
    assert client.receive(consumer="standby", count=1, timeout_s=0.2) == []
    second.kill()
    assert numbers(client.receive(consumer="standby", count=10)) == list(range(10))


def test_key_stays_with_one_consumer_and_in_order(client, topic):
    create(client, topic)
    names = ("one", "two", "three")
    for name in names:
        client.subscribe(name=name, topic=topic, subscription="s", type="KEY_SHARED")
    sent = [(f"key{number % 10}", number) for number in range(200)]
    for key, number in sent:
        client.send(producer="p", payload=encoded(str(number)), key=key)
    received = {name: [] for name in names}
    while sum(map(len, received.values())) < len(sent):
        for name in names:
            received[name] += client.receive(consumer=name, count=200, timeout_s=0.2)
    owners = defaultdict(set)
    by_key = defaultdict(list)
    for name, messages in received.items():
        for message in messages:
            owners[message["key"]].add(name)
            by_key[message["key"]] += numbers([message])
    assert all(len(each) == 1 for each in owners.values())
    assert {key: [n for k, n in sent if k == key] for key, _ in sent} == by_key


def test_key_filters_choose_the_messages_of_a_consumer(client, topic):
    create(client, topic)
    for name in ("eu", "us"):
        client.subscribe(
            *(),
            name=name,
            topic=topic,
            subscription="s",
            type="KEY_SHARED",
            key_filters=[f"{name}-*"],
        )
    for number in range(10):
        for region in ("eu", "us"):
            key = f"{region}-{number}"
            client.send(producer="p", payload=encoded(region), key=key)
    for name in ("eu", "us"):
        received = client.receive(consumer=name, count=10)
        assert payloads(received) == [name.encode()] * 10


def test_consumer_of_another_subscription_type_is_refused(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    with pytest.raises(ClientFailed, match="shared"):
        client.subscribe(name="d", topic=topic, subscription="s", type="FAILOVER")


# Missing topics and invalid requests.


def test_consumer_does_not_create_a_topic(client, topic):
    with pytest.raises(ClientFailed):
        client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    create(client, topic)


def test_message_that_is_too_large_is_refused_and_the_next_one_is_not(client, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    with pytest.raises(ClientFailed, match="exceeds maximum allowed"):
        client.send(producer="p", payload=encoded(bytes(20_000_000)))
    client.send(producer="p", payload=encoded("small"))
    assert payloads(client.receive(consumer="c", count=1)) == [b"small"]


# Reconnecting.


def test_producer_of_the_same_name_continues(client, second, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=5)
    create(second, topic)
    second.send_each(producer="p", first=5, end=10)
    client.send_each(producer="p", first=10, end=15)
    assert numbers(client.receive(consumer="c", count=15)) == list(range(15))


def test_consumer_of_the_same_name_takes_over(client, second, topic):
    create(client, topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=0, end=5)
    assert len(client.receive(consumer="c", count=5, acks=False)) == 5
    second.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    client.send_each(producer="p", first=5, end=10)
    assert numbers(second.receive(consumer="c", count=10)) == list(range(10))
    # The old consumer does not take it back.
    assert client.receive(consumer="c", count=1, timeout_s=1) == []
    client.send_each(producer="p", first=10, end=15)
    assert numbers(second.receive(consumer="c", count=5)) == list(range(10, 15))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_clients_continue_after_a_restart_of_the_broker(tmp_path, end):
    topic = "/default/orders"
    with (
        BrokerProcess(tmp_path / "data") as broker,
        DanubeClient(broker.grpc_url) as producer,
        DanubeClient(broker.grpc_url) as consumer,
    ):
        create(producer, topic)
        consumer.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
        producer.send_each(producer="p", first=0, end=20)
        assert numbers(consumer.receive(consumer="c", count=20)) == list(range(20))
        getattr(broker, end)()
        broker.start()
        producer.send_each(producer="p", first=20, end=40)
        received = consumer.receive(consumer="c", count=20, timeout_s=40)
        assert numbers(received) == list(range(20, 40))
        assert [message["offset"] for message in received] == list(range(20, 40))


@pytest.mark.soak
def test_kill_loses_no_acknowledged_messages(tmp_path):
    topic = "/default/orders"
    with (
        BrokerProcess(tmp_path / "data") as broker,
        DanubeClient(broker.grpc_url) as producer,
        DanubeClient(broker.grpc_url) as consumer,
    ):
        create(producer, topic)
        consumer.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
        receiving = consumer.start("receive_numbers", consumer="c", end=2000)
        sending = [
            producer.start("send_each", producer="p", first=first, end=first + 500)
            for first in range(0, 2000, 500)
        ]
        for number in (1, 2):
            wait_until_stored(broker, topic, 200 * number)
            broker.kill()
            broker.start()
        for each in sending:
            each.result(60)
        received = receiving.result(60)
    # A message may be stored twice if its sender got no receipt the first time.
    assert set(received) == set(range(2000))


def wait_until_stored(broker, topic, number) -> None:
    """Wait until the topic has this many messages."""
    with pydanube.sync.connect(broker.url) as native:
        for _ in range(10_000):
            if native.topics.describe(topic).end_offset >= number:
                return
    raise AssertionError("the producers do not go on")


def subscribed_after(client, **options) -> None:
    """Subscribe as soon as the broker accepts it."""
    for _ in range(100):
        try:
            client.subscribe(**options)
        except ClientFailed as error:
            refusal = error
        else:
            return
    raise AssertionError(str(refusal))


def test_guides_example_runs(broker):
    page = (ROOT / "docs" / "guide" / "danube-clients.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    example = example.replace("http://127.0.0.1:6650", broker.grpc_url)
    done = subprocess.run(
        [client_python(), "-c", example],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'hello' {'customer': 'ada'}\n"
