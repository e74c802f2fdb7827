"""Definitions of connectors in the metadata, and what workers report about them."""

import json
from contextlib import asynccontextmanager

import pytest

from pydanube.model.errors import InvalidName
from pydanube.model.stored_connectors import ConnectorReport
from pydanube.security.principals import ANONYMOUS
from pydanube_broker.broker.governance.access_control import AccessControl
from pydanube_broker.broker.governance.stored_connectors import open_stored_connectors
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ConnectorReportRecord
from support.fakes.memory_store import MemoryStore

TOPIC = "/default/t"


def clock():
    return 7


@asynccontextmanager
async def opened(store):
    async with open_stored_connectors(
        store, AccessControl(store, clock), clock
    ) as connectors:
        yield connectors


def definition(**options):
    return json.dumps({"kind": "generator-source", "topic": TOPIC, "options": options})


def report(name, state):
    return ConnectorReport(connector=name, worker="w", revision=1, state=state)


@pytest.fixture
async def store():
    return MemoryStore()


async def test_new_connector_has_no_report_of_a_deleted_one_of_its_name(store):
    async with opened(store) as connectors:
        await connectors.set("n", TOPIC, definition(), ANONYMOUS)
        await connectors.delete("n", TOPIC)
        # The broker of a worker did not know yet that the connector is deleted.
        late = ConnectorReportRecord(report=report("n", "failed"))
        await store.put(keys.CONNECTOR_REPORTS.key("n"), late)
        await connectors.set("n", TOPIC, definition(), ANONYMOUS)
        assert await store.get(keys.CONNECTOR_REPORTS.key("n")) is None
    async with opened(store) as connectors:
        assert connectors.find("n").report is None


async def test_changed_definition_keeps_the_report_and_the_pause(store):
    async with opened(store) as connectors:
        await connectors.set("n", TOPIC, definition(), ANONYMOUS, is_paused=True)
        assert connectors.find("n").is_paused
        await connectors.report([report("n", "paused")])
        await connectors.set("n", TOPIC, definition(count=1), ANONYMOUS)
        found = connectors.find("n")
        assert (found.revision, found.is_paused) == (2, True)
        assert (await store.get(keys.CONNECTOR_REPORTS.key("n"))) is not None
        await connectors.set("n", TOPIC, definition(), ANONYMOUS, is_paused=False)
        assert not connectors.find("n").is_paused


async def test_connectors_of_a_broker_that_starts_again_are_those_before(store):
    async with opened(store) as connectors:
        for name in ("b", "a"):
            await connectors.set(name, TOPIC, definition(), ANONYMOUS)
        await connectors.operate("a", TOPIC, is_paused=True, is_restarted=False)
        before = list(connectors.list())
    assert [each.name for each in before] == ["a", "b"]
    async with opened(store) as connectors:
        assert list(connectors.list()) == before
        assert [each.name for each in connectors.list("a")] == ["b"]


@pytest.mark.parametrize("name", ["", "a/b"])
async def test_a_name_that_no_connector_can_have_is_refused(store, name):
    async with opened(store) as connectors:
        with pytest.raises(InvalidName):
            await connectors.operate(name, TOPIC, is_paused=True, is_restarted=False)
        with pytest.raises(InvalidName):
            await connectors.delete(name, TOPIC)
