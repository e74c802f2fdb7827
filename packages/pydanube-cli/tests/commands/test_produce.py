"""The input and the summary of `danube produce`."""

import asyncio
import json

import pytest

from pydanube.client.messages.messages import MessageIds
from pydanube.client.messages.partitioned_ids import PartitionedIds, PartitionSlice
from pydanube_cli.commands import produce as cli
from pydanube_cli.commands.produce import (
    GROUP_BYTES,
    GROUP_MESSAGES,
    CommonOptions,
    Published,
    parsed,
    repeated,
)
from pydanube_cli.messages.pure.message_records import (
    FieldOptions,
    JsonParser,
    Record,
    RefusedRecord,
)
from pydanube_cli.presentation.output import OutputFormat, print_result


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


def test_records_have_precedence_over_the_common_key_and_attributes():
    producer = RecordingProducer()
    common = CommonOptions(
        key=b"k", attributes={"a": "1", "b": "2"}, delivery={"ttl_s": 1.0}
    )
    records = [
        Record(line=1, payload=b"x", publish_time=5, deliver_at=6, expires_at=7),
        Record(line=2, payload=b"y", publish_time=5, key=b"", attributes={"b": "3"}),
    ]
    asyncio.run(cli._publish(producer, common, records, Published("/default/a")))
    found = producer.messages.to_pydict()
    assert found["key"] == [b"k", b""]
    assert found["attributes"] == [
        [("a", "1"), ("b", "2")],
        [("a", "1"), ("b", "3")],
    ]
    assert [time and time.microsecond for time in found["deliver_at"]] == [6, None]
    assert [time.microsecond for time in found["publish_time"]] == [5, 5]
    # The option --ttl replaces it.
    assert "expires_at" not in found


async def lines_in(*groups):
    for each in groups:
        yield each


async def test_records_before_a_malformed_one_are_yielded():
    source = lines_in([b'{"payload": "a"}'], [b'{"payload": "b"}', b"{", b"{"])
    records = parsed(source, JsonParser(FieldOptions()))
    assert [each.payload for each in await anext(records)] == [b"a"]
    assert [each.payload for each in await anext(records)] == [b"b"]
    with pytest.raises(RefusedRecord, match="line 3: not JSON"):
        await anext(records)


def test_what_was_published_before_a_refusal_is_said():
    counted = Published("/default/a")
    said = []
    for _ in range(3):
        said.append(counted.before_refusal)
        counted.messages += 1
    assert said == [
        "nothing was published",
        "the message before it was published",
        "the 2 messages before it were published",
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


def test_messages_of_the_command_line_are_not_from_standard_input():
    assert cli.reads_standard_input(None, None)
    assert cli.reads_standard_input(None, cli.STANDARD_INPUT)
    assert not cli.reads_standard_input(["hello"], None)
    assert not cli.reads_standard_input(None, cli.Path("messages.txt"))
