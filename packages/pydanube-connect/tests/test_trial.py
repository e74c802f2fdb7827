"""A trial says whether connectors could run, and changes nothing."""

import pytest

from pydanube.model.errors import SchemaNotFound
from pydanube_connect.trial import try_connector
from support.drivers.connectors import declared

OWN = """
from pydanube_connect import Batch, ConnectorFailed, Record, Sink, Source

class Orders(Source):
    async def batches(self, position):
        assert position is None
        for number in range(4):
            yield Batch([], number)
            yield Batch([Record(value={"number": number, "to": "ada"}),
                         Record(value={"to": "bob"})], number)

class Silent(Source):
    async def batches(self, position):
        import asyncio
        await asyncio.Event().wait()
        yield

class Stubborn(Source):
    async def batches(self, position):
        import asyncio
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()
        yield

class Tray(Source):
    has_positions = False
    async def batches(self, position):
        raise AssertionError("reading would change the tray")
        yield

class Log(Source):
    has_effects = True
    async def check(self):
        raise OSError("there is no log")
    async def batches(self, position):
        raise AssertionError("reading would change the log")
        yield

class Store(Sink):
    entered = False
    async def __aenter__(self):
        self.entered = True
        return self
    async def check(self):
        assert self.entered
    async def write(self, messages):
        raise AssertionError("nothing is written")

class Shut(Store):
    async def check(self):
        raise ConnectorFailed("the store is shut, says secret-word")
"""
SCHEMA = """{"type": "object", "required": ["number"],
             "properties": {"number": {"type": "integer"}}}"""


@pytest.fixture
async def trial(broker, tmp_path):
    """Return a function that tries the connector with some fields."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "orders.json").write_text(SCHEMA)

    async def run(kind, more="", **options):
        fields = f"kind: {kind}, topic: /default/orders{more}"
        text = f"connectors: {{c: {{{fields}}}}}"
        [found] = declared(text, broker.url, tmp_path, WORD="secret-word")
        return await try_connector(found, **options)

    return run


async def test_source_shows_what_it_would_publish(trial, client):
    found = await trial(
        "own.py:Orders", ", mapping: {key: to, attributes: {n: number}}"
    )
    assert (found.problem, found.has_failed) == (None, False)
    assert [(each.key, each.payload) for each in found.samples] == [
        ("ada", '{"number":0,"to":"ada"}'),
        ("bob", '{"to":"bob"}'),
    ]
    assert found.samples[0].attributes == {"n": "0"}
    assert found.facts == [
        "/default/orders will be created",
        "2 records read: 2 messages",
    ]
    assert await client.topics.list("default") == []


async def test_at_most_the_wanted_records_are_read(trial):
    found = await trial("own.py:Orders", records_max=1)
    assert len(found.samples) == 1


async def test_records_that_the_schema_refuses_are_named(trial, client):
    schema = ", schema: {type: json_schema, file: orders.json}"
    found = await trial("own.py:Orders", schema)
    assert found.has_failed
    valid, refused = found.samples
    assert valid.problem is None
    assert "number" in refused.problem
    assert found.facts[-1] == "2 records read: 1 messages, 1 invalid"
    with pytest.raises(SchemaNotFound):
        await client.schemas.latest("default.orders")


async def test_records_that_the_transform_or_mapping_refuses_are_named(trial):
    found = await trial("own.py:Orders", ", mapping: {payload: number}")
    assert [each.problem is None for each in found.samples] == [True, False]
    assert "no field number" in found.samples[1].problem


async def test_source_without_records_is_no_failure(trial):
    found = await trial("own.py:Silent", timeout_s=0.05)
    assert not found.has_failed
    assert found.facts[-1] == "nothing to read within 0.05 s"


async def test_source_that_does_not_stop_reading_ends_the_trial(trial):
    found = await trial("own.py:Stubborn", timeout_s=0.2)
    assert found.problem == "no answer within 0.2 s"


async def test_source_whose_reading_has_effects_is_only_checked(trial):
    found = await trial("own.py:Tray")
    assert not found.has_failed
    assert "nothing was read" in found.facts[-1]
    found = await trial("own.py:Log")
    assert found.problem == "OSError: there is no log"


async def test_sink_is_opened_and_checked(trial, client):
    found = await trial("own.py:Store")
    assert (found.problem, found.facts[-1]) == (None, "0 messages wait")
    await client.topics.create("/default/orders")
    await client.subscriptions.create("/default/orders", "c")
    async with client.producer("/default/orders") as producer:
        await producer.send(b"1")
    found = await trial("own.py:Store")
    assert found.facts == ["1 messages wait"]


async def test_problem_hides_secrets(trial):
    found = await trial("own.py:Shut", ", subscription: '${env:WORD}'")
    assert found.problem == "the store is shut, says ***"
