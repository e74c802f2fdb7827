"""Tests of runs of sources: mapping, dead letters, retries, stopping."""

import asyncio
import sys

import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.schemas import SchemaType, TopicSchema
from pydanube_connect.dead_letters import ORIGINAL_BYTES, PAYLOAD_BYTES_MAX
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"

OWN = '''
from pydanube_connect import Batch, Record, Section, Source, Transient

FAILURES = ["first", "second"]


class Orders(Source):
    """Has three orders, the second of which is invalid."""

    async def batches(self, position):
        for number in range(position or 0, 3):
            value = b"{" if number == 1 else {"id": number, "customer": "ada"}
            yield Batch([Record(value=value)], position=number + 1)


class Unreliable(Source):
    """Fails twice after its first batch."""

    async def batches(self, position):
        for number in range(position or 0, 3):
            if number == 1 and FAILURES:
                raise Transient(f"the {FAILURES.pop(0)} failure")
            yield Batch([Record(value=str(number))], position=number + 1)


class Large(Source):
    """Has messages, one of which is too large for the broker."""

    async def batches(self, position):
        sizes = (1, 9_000_000, 2)
        if not position:
            yield Batch([Record(value=b"x" * size) for size in sizes], position=3)


class Rows(Source):
    """Has ten rows, each in a batch of its own."""

    async def batches(self, position):
        for number in range(position or 0, 10):
            yield Batch([Record(value={"text": "x" * 1100})], position=number + 1)


class Lost(Source):
    """Forgets its position."""

    async def batches(self, position):
        yield Batch([Record(value="1")])
'''


async def run(tmp_path, text):
    """Run connectors to their ends; their statuses and the messages of each topic."""
    (tmp_path / "own.py").write_text(OWN)
    async with memory_broker() as broker, broker.connect() as client:
        connectors = declared(text, broker.url, tmp_path)
        async with running(connectors) as until:
            found = await until(
                lambda all_: all(each.state.is_over for each in all_.values())
            )
        messages = {
            topic: [message async for batch in client.read(topic) for message in batch]
            for topic in await client.topics.list("default")
        }
        return found, messages


def test_fields_become_keys_and_invalid_messages_dead_letters(tmp_path):
    text = f"""
connectors:
  orders:
    kind: own.py:Orders
    topic: {TOPIC}
    mapping: {{key: customer, attributes: {{number: id}}}}
    dead_letters: {TOPIC}-dead
"""
    found, messages = asyncio.run(run(tmp_path, text))
    status = found["orders"]
    assert (status.state, status.messages) == (State.FINISHED, 2)
    assert (status.dead_letters, status.position) == (1, 3)
    assert [each.key for each in messages[TOPIC]] == ["ada", "ada"]
    assert [each.attributes for each in messages[TOPIC]] == [
        {"number": "0"},
        {"number": "2"},
    ]
    [dead] = messages[f"{TOPIC}-dead"]
    assert dead.payload == b"{"
    assert dead.attributes["x-original-topic"] == TOPIC
    assert "not JSON" in dead.attributes["x-failure-reason"]


def test_connector_fails_at_an_invalid_message_without_dead_letters(tmp_path):
    text = f"""
connectors:
  orders: {{kind: "own.py:Orders", topic: {TOPIC}, mapping: {{key: customer}},
           batch: {{messages: 1}}}}
  numbers: {{kind: generator-source, topic: /default/numbers, options: {{count: 10}}}}
"""
    found, messages = asyncio.run(run(tmp_path, text))
    assert found["orders"].state is State.FAILED
    assert "dead_letters" in found["orders"].error
    assert len(messages[TOPIC]) == 1
    # The others continue.
    assert found["numbers"].state is State.FINISHED
    assert len(messages["/default/numbers"]) == 10


def test_message_that_the_broker_refuses_becomes_a_dead_letter_alone(tmp_path):
    text = f"""
connectors:
  c: {{kind: "own.py:Large", topic: {TOPIC}}}
  d: {{kind: "own.py:Large", topic: {TOPIC}-2, dead_letters: {TOPIC}-dead}}
"""
    found, messages = asyncio.run(run(tmp_path, text))
    assert found["c"].state is State.FAILED
    assert "dead_letters" in found["c"].error
    assert (found["d"].state, found["d"].messages) == (State.FINISHED, 2)
    assert [len(each.payload) for each in messages[f"{TOPIC}-2"]] == [1, 2]
    [dead] = messages[f"{TOPIC}-dead"]
    assert len(dead.payload) == PAYLOAD_BYTES_MAX
    assert dead.attributes[ORIGINAL_BYTES] == "9000000"
    assert "x-failure-reason" in dead.attributes


def test_rows_are_published_together_up_to_a_size(tmp_path):
    text = f"""
connectors:
  small: {{kind: "own.py:Rows", topic: {TOPIC}, batch: {{bytes: 1KiB}}}}
  large: {{kind: "own.py:Rows", topic: {TOPIC}-2, batch: {{bytes: 1MiB}}}}
"""
    found, _ = asyncio.run(run(tmp_path, text))
    assert (found["small"].messages, found["small"].batches) == (10, 10)
    assert found["large"].messages == 10
    assert found["large"].batches < 10


def test_source_that_fails_is_opened_again_at_its_position(tmp_path):
    text = f"""
connectors:
  c: {{kind: "own.py:Unreliable", topic: {TOPIC}, retries: {{backoff: 1ms}}}}
"""
    found, messages = asyncio.run(run(tmp_path, text))
    assert found["c"].state is State.FINISHED
    assert (found["c"].retries, found["c"].error) == (2, "the second failure")
    assert [each.payload for each in messages[TOPIC]] == [b"0", b"1", b"2"]


def test_retries_end(tmp_path):
    text = f"""
connectors:
  c: {{kind: "own.py:Unreliable", topic: {TOPIC}, retries: {{count: 0}}}}
  d: {{kind: "own.py:Lost", topic: {TOPIC}-2}}
"""
    found, _ = asyncio.run(run(tmp_path, text))
    assert found["c"].state is State.FAILED
    assert found["c"].error == "the first failure"
    assert "without position" in found["d"].error


def test_stop_publishes_what_was_read():
    async def stop():
        text = f"""
connectors:
  numbers: {{kind: generator-source, topic: {TOPIC}, options: {{rate: 1000}}}}
"""
        async with memory_broker() as broker, broker.connect() as client:
            async with running(declared(text, broker.url)) as until:
                statuses = await until(lambda all_: all_["numbers"].messages > 0)
            status = statuses["numbers"]
            assert status.state is State.STOPPED
            facts = await client.topics.describe(TOPIC)
            assert facts.message_count == status.messages == status.position

    asyncio.run(stop())


ENRICH = '''
def each(record):
    """Split an order into its lines."""
    return [record.replace(value={"line": line}) for line in record.value["lines"]]
'''

LINES = '''
from pydanube_connect import Batch, Record, Source


class Lines(Source):
    """Has orders with lines."""

    async def batches(self, position):
        orders = [
            {"lines": [1, 2]},
            {"lines": None},
            {"lines": []},
            {"lines": [3, {}]},
            {"lines": [4]},
        ]
        yield Batch([Record(value=order) for order in orders[position or 0 :]], 5)
'''


def test_transform_splits_and_drops_records_and_invalid_ones_are_dead(tmp_path):
    (tmp_path / "enrich.py").write_text(ENRICH)
    (tmp_path / "lines.py").write_text(LINES)
    (tmp_path / "line.json").write_text(
        '{"type": "object", "properties": {"line": {"type": "integer"}}}'
    )
    text = f"""
connectors:
  c:
    kind: "lines.py:Lines"
    topic: {TOPIC}
    transform: [{{function: "enrich.py:each"}}, "{{line: line}}"]
    schema: {{type: json_schema, file: line.json}}
    dead_letters: {TOPIC}-dead
"""
    found, messages = asyncio.run(run(tmp_path, text))
    status = found["c"]
    assert (status.messages, status.dropped, status.dead_letters) == (3, 1, 2)
    # A record of which one line is invalid is published as a dead letter only.
    assert [each.payload for each in messages[TOPIC]] == [
        *(b'{"line":1}', b'{"line":2}', b'{"line":4}')
    ]
    dead = messages[f"{TOPIC}-dead"]
    assert [each.payload for each in dead] == [b'{"lines":null}', b'{"lines":[3,{}]}']
    assert "transform[0]: TypeError" in dead[0].attributes["x-failure-reason"]


def test_position_moves_on_if_all_records_are_dropped(tmp_path):
    text = f"""
connectors:
  c:
    kind: generator-source
    topic: {TOPIC}
    transform: [nothing]
    options: {{count: 5}}
"""
    found, messages = asyncio.run(run(tmp_path, text))
    status = found["c"]
    assert (status.messages, status.dropped, status.position) == (0, 5, 5)
    assert messages[TOPIC] == []


NEWER = '''
from pydanube_connect import Batch, Record, Source

GO = []


class Newer(Source):
    """Has a value of the next version of the schema, when the test says so."""

    async def batches(self, position):
        import asyncio

        for number in range(position or 0, 2):
            while number and not GO:
                await asyncio.sleep(0.001)
            yield Batch([Record(value={"n": "one" if number else 1})], number + 1)
'''


async def test_newer_version_of_the_schema_is_noticed_by_a_value(tmp_path):
    (tmp_path / "newer.py").write_text(NEWER)
    text = f"""
connectors:
  c: {{kind: "newer.py:Newer", topic: {TOPIC}, schema: {{}},
      dead_letters: {TOPIC}-dead}}
"""
    number = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    any_ = '{"type": "object", "properties": {"n": {"type": ["integer", "string"]}}}'
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC)
        schemas = client.schemas
        await schemas.register("default-orders", Schema(SchemaType.JSON_SCHEMA, number))
        connectors = declared(text, broker.url, tmp_path)
        async with running(connectors) as until:
            await until(lambda all_: all_["c"].messages == 1)
            await schemas.register(
                "default-orders", Schema(SchemaType.JSON_SCHEMA, any_)
            )
            sys.modules[connectors[0].kind.__module__].GO.append(1)
            status = (await until(lambda all_: all_["c"].state.is_over))["c"]
    assert (status.messages, status.dead_letters) == (2, 0)


TYPED = '''
import asyncio

from pydanube.model.schemas import SchemaType
from pydanube_connect import Batch, Record, RecordSchema, Source

GO = asyncio.Event()
SCHEMA = RecordSchema(SchemaType.JSON_SCHEMA, ('{"type": "object"}',))


class Typed(Source):
    """Has a second value of its schema when the test says so."""

    async def batches(self, position):
        for number in range(position or 0, 2):
            if number:
                await GO.wait()
            yield Batch([Record(value=b'{"n": 1}', schema=SCHEMA)], number + 1)
'''


async def test_schemas_of_records_follow_their_topic_to_another_subject(tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    text = f"""
connectors:
  c: {{kind: "typed.py:Typed", topic: {TOPIC}, dead_letters: {TOPIC}-dead}}
"""
    other = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    async with memory_broker() as broker, broker.connect() as client:
        connectors = declared(text, broker.url, tmp_path)
        async with running(connectors) as until:
            await until(lambda all_: all_["c"].messages == 1)
            await client.schemas.register(
                "other", Schema(SchemaType.JSON_SCHEMA, other)
            )
            await client.topics.configure(TOPIC, schema=TopicSchema(subject="other"))
            sys.modules[connectors[0].kind.__module__].GO.set()
            failed = (await until(lambda all_: all_["c"].state.is_over))["c"]
        assert (failed.state, failed.messages) == (State.FAILED, 1)
        assert "cannot use 'default-orders'" in failed.error
        async with running(connectors) as until:
            status = (await until(lambda all_: all_["c"].state.is_over))["c"]
        assert (status.messages, status.dead_letters) == (1, 0)
        subjects = [
            (await client.schemas.by_id(each.schema_id, each.schema_version)).subject
            async for batch in client.read(TOPIC)
            for each in batch
        ]
    assert subjects == ["default-orders", "other"]
