"""The source of Kafka's messages continues at the offsets that it has published."""

import pytest

pytest.importorskip("confluent_kafka")

from pydanube_connect.sources.kafka import (
    KafkaOptions,
    KafkaSource,
    is_read,
    target_of,
)
from support.drivers.connectors import read_records
from support.servers.kafka import PARTITIONS, kafka_in_memory, produce

TIMEOUT_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers():
    with kafka_in_memory() as servers:
        yield servers


def offsets(first):
    """The offsets of a topic that has messages in its first partition only."""
    return {"0": first, **{str(number): 0 for number in range(1, PARTITIONS)}}


async def read(count, position=None, **options):
    return await read_records(KafkaSource(KafkaOptions(**options)), count, position)


async def test_messages_have_key_headers_and_origin(servers):
    produce(servers, "orders", [(b"k", b"one"), (None, b"two")])
    records, position = await read(2, servers=servers, topics={"orders": None})
    assert [each.value for each in records] == [b"one", b"two"]
    first = dict(records[0].attributes)
    assert int(first.pop("kafka.timestamp")) > 1_700_000_000_000
    assert first == {
        "source": "test",
        "kafka.topic": "orders",
        "kafka.partition": "0",
        "kafka.offset": "0",
    }
    assert (records[0].key, records[0].topic) == (b"k", None)
    assert position == {"orders": offsets(2)}


async def test_source_continues_at_its_position(servers):
    produce(servers, "numbers", [(None, b"%d" % number) for number in range(10)])
    options = {"servers": servers, "topics": {"numbers": "/default/numbers"}}
    records, position = await read(3, {"numbers": offsets(7)}, **options)
    assert [each.value for each in records] == [b"7", b"8", b"9"]
    assert {each.topic for each in records} == {"/default/numbers"}
    assert position == {"numbers": offsets(10)}


async def test_partitions_keep_their_order(servers):
    produce(
        servers,
        "keyed",
        [(b"%d" % (n % 7), b"%d" % n) for n in range(200)],
        partition=-1,
    )
    records, position = await read(200, servers=servers, topics={"keyed": None})
    by_key = {}
    for each in records:
        by_key.setdefault(each.key, []).append(int(each.value))
    assert sorted(map(len, by_key.values())) == [28, 28, 28, 29, 29, 29, 29]
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(position["keyed"].values()) == 200


async def test_start_at_the_end_is_stored_before_messages_arrive(servers):
    produce(servers, "late", [(None, b"before")])
    source = KafkaSource(
        KafkaOptions(servers=servers, topics={"late": None}, start="latest")
    )
    batches = source.batches(None)
    try:
        first = await anext(batches)
        assert (list(first.records), first.position) == ([], {"late": offsets(1)})
    finally:
        await batches.aclose()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"schema_registry": "registry:8081"}, "schema_registry"),
        ({"schema_registry_username": "u"}, "schema_registry_password"),
        (
            {"schema_registry_username": "u", "schema_registry_password": "p"},
            "schema_registry_username",
        ),
    ],
)
def test_options_of_a_registry_belong_together(options, option):
    found = KafkaSource.problems(KafkaOptions(topics={"orders": None}, **options))
    assert list(found) == [option]


def test_patterns_name_topics_but_none_of_kafka_itself():
    topics = {"^logs-.*": "/default/{topic}", "orders": None, "^.*": "/default/rest"}
    assert target_of("logs-a!b", topics) == "/default/logs-a_b"
    assert target_of("orders", topics) is None
    assert target_of("other", topics) == "/default/rest"
    assert not is_read("__consumer_offsets", topics)
    assert is_read("__consumer_offsets", {"__consumer_offsets": None})
    assert not is_read("x", {"orders": None})
