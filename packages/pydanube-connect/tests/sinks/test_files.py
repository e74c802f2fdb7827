"""Tests of the sink that writes messages to files."""

import pyarrow.parquet as pq
import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_connect.sinks.files import FileFormat, last_offset_of, name_of
from support.drivers.connectors import declared, running
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"
NAMES = "default/orders/{:020}-{:020}.{}"


def declaration(directory, *, file_format="lines", fields=""):
    return f"""
connectors:
  out:
    kind: files-sink
    topic: {TOPIC}
    dead_letters: /default/dead
    batch: {{messages: 10}}
    options: {{url: "fs://{directory}", format: {file_format}}}
{fields}"""


def files_in(directory):
    return {
        str(each.relative_to(directory)): each.read_bytes()
        for each in sorted(directory.rglob("*.jsonl"))
    }


def test_names_sort_as_offsets_and_say_which_are_written():
    first = name_of(TOPIC, 0, 99, FileFormat.LINES)
    assert first == NAMES.format(0, 99, "jsonl")
    assert first < name_of(TOPIC, 100, 1000, FileFormat.LINES)
    assert last_offset_of(first) == 99
    assert last_offset_of("default/orders/notes.txt") == -1


async def test_each_batch_becomes_a_file(tmp_path):
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"%d" % each for each in range(25)])
        async with running(declared(declaration(tmp_path), broker.url)) as until:
            await until(lambda found: found["out"].messages == 25)
    assert files_in(tmp_path) == {
        NAMES.format(0, 9, "jsonl"): b"".join(b"%d\n" % each for each in range(10)),
        NAMES.format(10, 19, "jsonl"): b"".join(
            b"%d\n" % each for each in range(10, 20)
        ),
        NAMES.format(20, 24, "jsonl"): b"20\n21\n22\n23\n24\n",
    }


async def test_messages_that_files_have_are_left_out(tmp_path):
    written = NAMES.format(0, 4, "jsonl")
    (tmp_path / written).parent.mkdir(parents=True)
    (tmp_path / written).write_bytes(b"written before a crash\n")
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"%d" % each for each in range(7)])
        async with running(declared(declaration(tmp_path), broker.url)) as until:
            await until(lambda found: found["out"].messages == 7)
    assert files_in(tmp_path) == {
        written: b"written before a crash\n",
        NAMES.format(5, 6, "jsonl"): b"5\n6\n",
    }


async def test_payloads_with_line_breaks_become_dead_letters(tmp_path):
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"a\nb", b"c"])
        async with running(declared(declaration(tmp_path), broker.url)) as until:
            found = await until(lambda found: found["out"].batches)
        dead = [each async for b in client.read("/default/dead") for each in b.payloads]
    assert dead == [b"a\nb"]
    assert found["out"].dead_letters == 1
    assert files_in(tmp_path) == {NAMES.format(1, 1, "jsonl"): b"c\n"}


async def test_rows_of_parquet_have_all_of_a_message(tmp_path):
    text = declaration(tmp_path, file_format="parquet")
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"a\nb", key="k", attributes={"x": "y"})
            await producer.send(b"\xff")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["out"].messages == 2)
        sent = [each async for batch in client.read(TOPIC) for each in batch]
    rows = pq.read_table(tmp_path / "default").to_pylist()
    assert [
        (each["offset"], each["key"], each["payload"], each["attributes"])
        for each in rows
    ] == [(0, b"k", b"a\nb", [("x", "y")]), (1, None, b"\xff", [])]
    assert [each["publish_time"] for each in rows] == [m.publish_time for m in sent]


async def test_a_directory_that_cannot_be_written_is_tried_again(tmp_path):
    (tmp_path / "default").write_text("no directory")
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"a")
        text = declaration(tmp_path, fields="    retries: {backoff: 1ms}")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["out"].retries)
            (tmp_path / "default").unlink()
            await until(lambda found: found["out"].messages == 1)
    assert files_in(tmp_path) == {NAMES.format(0, 0, "jsonl"): b"a\n"}


def test_a_topic_of_a_shared_subscription_has_no_order_for_files():
    with pytest.raises(InvalidDeclaration, match="failover or exclusive"):
        declared(declaration("/x", fields="    type: shared"), "danube://h:1")


async def test_delayed_messages_become_dead_letters(tmp_path):
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create("/default/dead")
        async with client.producer(TOPIC) as producer:
            await producer.send(b"later", deliver_after_s=0.2)
            await producer.send(b"now")
        async with running(declared(declaration(tmp_path), broker.url)):
            async for batch in client.read("/default/dead", follow=True):
                assert list(batch.payloads) == [b"later"]
                break
    assert files_in(tmp_path) == {NAMES.format(1, 1, "jsonl"): b"now\n"}
