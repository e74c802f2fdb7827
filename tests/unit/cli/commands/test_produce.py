"""The input and the summary of `danube produce`."""

import asyncio
import json

import pytest

from pydanube.cli.commands import produce as cli
from pydanube.cli.commands.produce import (
    GROUP_BYTES,
    GROUP_MESSAGES,
    CommonOptions,
    Published,
    repeated,
    values_of,
)
from pydanube.cli.output import OutputFormat, print_result
from pydanube.client.messages import MessageIds, PartitionedIds, PartitionSlice
from pydanube.model.errors import InvalidPayload
from pydanube.model.schemas import SchemaType


def groups_of(payloads, count):
    async def collect():
        return [group async for group in repeated(payloads, count)]

    return asyncio.run(collect())


@pytest.mark.parametrize("count", [1, 2, 4096, 4097, 10_000])
def test_messages_are_repeated_in_their_order(count):
    groups = groups_of([b"a", b"b"], count)
    assert [payload for group in groups for payload in group] == [b"a", b"b"] * count


def test_group_is_at_most_a_batch():
    assert max(map(len, groups_of([b""], 100_000))) == GROUP_MESSAGES
    large = bytes(GROUP_BYTES // 2)
    assert [len(group) for group in groups_of([large], 5)] == [2, 2, 1]


def test_large_input_is_one_group():
    payloads = [b"x"] * (GROUP_MESSAGES + 1)
    assert [len(group) for group in groups_of(payloads, 2)] == [len(payloads)] * 2


class RecordingProducer:
    async def send_batch(self, messages, **delivery):
        self.messages, self.delivery = messages, delivery
        return MessageIds("/default/a", range(len(messages)))


def sent(key, attributes):
    producer = RecordingProducer()
    common = CommonOptions(key=key, attributes=attributes, delivery={"ttl_s": 1.0})
    counted = Published("/default/a")
    asyncio.run(cli._publish(producer, common, [b"a", b"b"], counted))
    assert counted.messages == 2
    assert producer.delivery == {"ttl_s": 1.0}
    return producer.messages


def test_payloads_alone_stay_a_list():
    assert sent(None, {}) == [b"a", b"b"]


def test_every_message_gets_the_key_and_the_attributes():
    assert sent(b"k", {"source": "web"}).to_pylist() == [
        {"key": b"k", "payload": each, "attributes": [("source", "web")]}
        for each in (b"a", b"b")
    ]


def published():
    counted = Published("/default/a")
    counted.add([b"a", b"bc"], MessageIds("/default/a", range(10, 12)))
    counted.add([b"d"], MessageIds("/default/a", range(12, 13)))
    counted.seconds = 0.5
    return counted


def test_published_counts_add_up():
    assert str(published()) == (
        "Published 3 messages to /default/a (4 B) at offsets 10 to 12 in 0.50 s, "
        "6 messages/s."
    )


def test_summary_is_printed_as_json(capsys):
    print_result(published().result(), OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == {
        "topic": "/default/a",
        "messages": 3,
        "bytes": 4,
        "seconds": 0.5,
        "messages_per_second": 6.0,
        "first_offset": 10,
        "last_offset": 12,
    }


def test_one_message_has_one_offset():
    counted = Published("/default/a")
    counted.add([b"a"], MessageIds("/default/a", [7]))
    assert str(counted) == "Published 1 message to /default/a at offset 7."


def spread():
    counted = Published("/default/a")
    names = ["/default/a-part-0", "/default/a-part-1"]
    for counts in ([1, 2], [0, 1]):
        runs = [PartitionSlice(n, range(count), ()) for n, count in enumerate(counts)]
        ids = PartitionedIds("/default/a", names, runs)
        counted.add([b"x"] * sum(counts), ids)
    counted.seconds = 0.5
    return counted


def test_messages_are_counted_by_partition(
    capsys,
):
    assert str(spread()) == (
        "Published 4 messages to /default/a (4 B), to 2 partitions, in 0.50 s, "
        "8 messages/s."
    )
    print_result(spread().result(), OutputFormat.JSON)
    said = json.loads(capsys.readouterr().out)
    assert said["partitions"] == {"/default/a-part-0": 1, "/default/a-part-1": 3}
    assert said["first_offset"] is None


def test_summary_without_messages_has_no_offsets():
    assert str(Published("/default/a")) == "Published 0 messages to /default/a."


@pytest.mark.parametrize(
    ("type_", "payloads", "values"),
    [
        (SchemaType.BYTES, [b"\xff"], [b"\xff"]),
        (SchemaType.STRING, ["ü".encode()], ["ü"]),
        (SchemaType.NUMBER, [b"7", b"1.5"], [7, 1.5]),
        (SchemaType.AVRO, [b'{"a": [1]}'], [{"a": [1]}]),
    ],
)
def test_input_is_converted_to_the_type_of_the_schema(type_, payloads, values):
    assert values_of(type_, payloads) == values


@pytest.mark.parametrize(
    ("type_", "payload", "said"),
    [
        (SchemaType.STRING, b"\xff", "takes messages in UTF-8"),
        (SchemaType.AVRO, b"{", "takes messages in JSON"),
    ],
)
def test_input_that_does_not_fit_the_schema_is_shown(type_, payload, said):
    with pytest.raises(InvalidPayload, match=said):
        values_of(type_, [payload])
