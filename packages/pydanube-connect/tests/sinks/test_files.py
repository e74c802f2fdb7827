"""Tests of the sink that writes messages to files."""

import gzip

import pyarrow.parquet as pq
import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from support.drivers.connectors import declared, running
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"
NAMES = "default/orders/{:020}-{:020}.{}"


def declaration(directory, *, file_format="lines", more="", fields=""):
    return f"""
connectors:
  out:
    kind: files-sink
    topic: {TOPIC}
    dead_letters: /default/dead
    batch: {{messages: 10}}
    options: {{url: "fs://{directory}", format: {file_format}{more}}}
{fields}"""


def files_in(directory):
    return {
        str(each.relative_to(directory)): each.read_bytes()
        for each in sorted(directory.rglob("*.jsonl"))
    }


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


async def test_messages_of_a_partition_are_written_once_after_an_interrupted_batch(
    tmp_path,
):
    """The files of the first partition of a batch were written, then a crash."""
    text = declaration(tmp_path, more=", partition: 'in={value.r}'")
    directory = tmp_path / "default/orders"
    (directory / "in=a").mkdir(parents=True)
    written = directory / "in=a" / f"{0:020}-{2:020}.jsonl"
    written.write_bytes(b"0 and 2\n")
    rows = [b'{"r": "%s", "n": %d}' % (b"ab/"[n % 2 :][:1], n) for n in range(6)]
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([*rows, b'{"r": "../x"}', b"{}"])
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["out"].messages == 8)
    found = {
        name.partition("orders/")[2]: data for name, data in files_in(tmp_path).items()
    }
    assert found == {
        f"in=a/{0:020}-{2:020}.jsonl": b"0 and 2\n",
        f"in=a/{4:020}-{4:020}.jsonl": rows[4] + b"\n",
        f"in=b/{1:020}-{5:020}.jsonl": b"".join(rows[n] + b"\n" for n in (1, 3, 5)),
        f"in=..%2Fx/{6:020}-{6:020}.jsonl": b'{"r": "../x"}\n',
        f"in=__HIVE_DEFAULT_PARTITION__/{7:020}-{7:020}.jsonl": b"{}\n",
    }


async def test_columns_are_fields_and_messages_without_them_are_dead_letters(tmp_path):
    columns = "{id: integer, at: time, who: {field: user.name}, n: {message: offset}}"
    more = f", compression: gzip, columns: {columns}"
    text = declaration(tmp_path, file_format="csv", more=more)
    row = b'{"id": 7, "at": "2026-01-02T03:04:05", "user": {"name": "Zo\xc3\xab"}}'
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([row, b'{"id": "x"}', b"[]", b"{}"])
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["out"].batches)
        dead = [each async for b in client.read("/default/dead") for each in b]
    assert found["out"].messages == 2
    [file] = tmp_path.rglob("*.csv.gz")
    assert gzip.decompress(file.read_bytes()).decode() == (
        '"id","at","who","n"\n7,2026-01-02 03:04:05.000000Z,"Zo\xeb",0\n,,,3\n'
    )
    reasons = [each.attributes["x-failure-reason"] for each in dead]
    assert "the column 'id' is no integer" in reasons[0]
    assert "not a JSON object" in reasons[1]


async def test_lines_break_only_between_messages(tmp_path):
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b'{\n "a": "b\\n"\n}')
        async with running(declared(declaration(tmp_path), broker.url)) as until:
            await until(lambda found: found["out"].messages == 1)
    assert list(files_in(tmp_path).values()) == [b'{"a":"b\\n"}\n']
