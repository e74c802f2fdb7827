"""Stored connectors, through the client."""

from __future__ import annotations

import json

import pytest

from pydanube.model.errors import (
    AlreadyExists,
    Conflict,
    InvalidName,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from pydanube.model.stored_connectors import WORKERS_TOPIC, ConnectorReport
from pydanube.security.principals import Principal
from pydanube_broker.broker.governance import stored_connectors
from pydanube_broker.operations import stored_connectors as operations
from support.fakes.principals import ROOT, client_of, guarded_broker

TOPIC = "/default/numbers"
AUTHOR = Principal("author", "token")
WORKER = Principal("worker", "token")
OTHER = Principal("other", "token")


def definition(topic=TOPIC, **options):
    fields = {"kind": "generator-source", "topic": topic, "options": options}
    return json.dumps(fields)


def nested(depth):
    """A definition whose option has *depth* lists; options have two levels."""
    value = []
    for _ in range(depth - 1):
        value = [value]
    return definition(value=value)


async def test_connector_is_stored_changed_and_deleted(client):
    connectors = client.connectors
    assert await connectors.set("n", TOPIC, definition(count=1)) == 1
    assert await connectors.set("n", TOPIC, definition(count=2)) == 2
    found = await connectors.describe("n")
    assert (found.kind, found.topic, found.revision) == ("generator-source", TOPIC, 2)
    assert json.loads(found.definition)["options"] == {"count": 2}
    assert found.report is None
    await connectors.delete("n")
    with pytest.raises(NotFound, match="no stored connector n"):
        await connectors.describe("n")
    assert await connectors.set("n", TOPIC, definition()) == 1


async def test_change_of_another_revision_is_refused(client):
    connectors = client.connectors
    await connectors.set("n", TOPIC, definition(), expected_revision=0)
    with pytest.raises(AlreadyExists):
        await connectors.set("n", TOPIC, definition(), expected_revision=0)
    with pytest.raises(Conflict, match="its revision is 1, not 7"):
        await connectors.set("n", TOPIC, definition(), expected_revision=7)


async def test_pause_and_restart_leave_the_definition(client):
    connectors = client.connectors
    await connectors.set("n", TOPIC, definition())
    await connectors.pause("n")
    await connectors.restart("n")
    found = await connectors.describe("n")
    assert (found.is_paused, found.restarts, found.revision) == (True, 1, 1)
    await connectors.resume("n")
    assert not (await connectors.describe("n")).is_paused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "no JSON object"),
        ('{"topic": "/default/numbers"}', "has no 'kind'"),
        (definition("/default/other"), "the request names /default/numbers"),
        (definition(password="x"), "options.password of n is a secret in plain text"),
        (definition(text="x" * 70_000), "at most 65,536 are allowed"),
        (nested(49), "nested more than 50 levels deep"),
        (nested(600), "nested more than 50 levels deep"),
    ],
)
async def test_malformed_definition_is_refused(client, text, reason):
    with pytest.raises(InvalidRequest, match=reason):
        await client.connectors.set("n", TOPIC, text)


async def test_last_report_of_a_connector_counts(client):
    await client.connectors.set("n", TOPIC, definition())
    reports = [
        ConnectorReport(connector="n", worker="w", revision=1, state=state)
        for state in ("running", "failed")
    ]
    await client.connectors.report(reports)
    while (found := await client.connectors.describe("n")).report is None:
        pass
    assert found.report.state == "failed"


async def test_each_page_of_a_list_costs_as_much_as_it_has(client, monkeypatch):
    described, describe = [], stored_connectors._describe

    def note(name, *facts):
        described.append(name)
        return describe(name, *facts)

    count = operations.PAGE_CONNECTORS_MAX + 1
    for number in range(count):
        await client.connectors.set(f"n{number:03}", TOPIC, definition())
    monkeypatch.setattr(stored_connectors, "_describe", note)
    found = (await client.connectors.list()).connectors
    assert [each.name for each in found] == [f"n{each:03}" for each in range(count)]
    # The last one has said, too, that there is another page.
    assert len(described) == count + 1


async def test_name_leaves_room_for_what_is_called_after_it(client):
    # The topic of the positions is NAME.positions, and the lock of the worker run-NAME.
    for name, reason in (("n" * 246, "has at most 255"), ("a/b", "no slash")):
        with pytest.raises(InvalidName, match=reason):
            await client.connectors.set(name, TOPIC, definition())
    assert await client.connectors.set("n" * 245, TOPIC, definition()) == 1


async def test_definition_is_as_deep_as_a_file_can_be(client):
    assert await client.connectors.set("n", TOPIC, nested(48)) == 1


async def test_connector_keeps_its_topic(client):
    await client.connectors.set("n", TOPIC, definition())
    with pytest.raises(InvalidRequest, match="keeps its topic"):
        await client.connectors.set("n", "/default/other", definition("/default/other"))


async def test_report_is_listed_with_its_connector(client):
    await client.connectors.set("n", TOPIC, definition())
    await client.topics.create(WORKERS_TOPIC, exist_ok=True)
    reports = [
        ConnectorReport(connector=name, worker="w", revision=1, state="running", lag=0)
        for name in ("n", "unknown")
    ]
    await client.connectors.report(reports)
    while (found := await client.connectors.describe("n")).report is None:
        pass
    assert (found.report.worker, found.report.state) == ("w", "running")
    assert found.report.reported_at > 0
    listed = await client.connectors.list()
    assert [each.name for each in listed.connectors] == ["n"]
    assert listed.connectors[0].definition == ""


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker, client_of(broker, ROOT) as root:
        security = root.security
        await security.set_role("storing", ["cluster_admin"])
        await security.add_binding("user:author", ["storing"], ["cluster"])
        await security.add_binding(
            "user:author", ["developer"], ["/shop/*"], binding_id="author"
        )
        await security.add_binding(
            "user:worker", ["developer"], ["/*/*", WORKERS_TOPIC]
        )
        await security.add_binding("user:other", ["viewer"], ["/shop/*"])
        async with client_of(broker, AUTHOR) as client:
            await client.connectors.set("n", "/shop/a", definition("/shop/a"))
        yield broker


async def test_connector_may_do_what_worker_and_author_may(guarded):
    async with client_of(guarded, WORKER) as worker:
        check = worker.security.check_access
        assert (await check("produce", "/shop/a", connector="n")).allowed
        # The worker may; the author may not.
        found = await check("produce", "/bank/b", connector="n")
        assert not found.allowed
        assert found.rule.startswith("the author of the connector, user:author: ")
    async with client_of(guarded, OTHER) as other:
        found = await other.security.check_access("produce", "/shop/a", connector="n")
        assert not found.allowed


async def test_connector_loses_what_its_author_loses(guarded):
    async with client_of(guarded, ROOT) as root:
        await root.security.remove_binding("author")
    async with client_of(guarded, WORKER) as worker:
        found = await worker.security.check_access("produce", "/shop/a", connector="n")
        assert not found.allowed


async def test_only_administrators_store_and_only_managers_pause(guarded):
    async with client_of(guarded, OTHER) as other:
        [listed] = (await other.connectors.list()).connectors
        assert listed.author == "user:author"
        connectors = other.connectors
        for change in (
            connectors.set("n", "/shop/a", definition("/shop/a")),
            connectors.delete("n"),
            connectors.pause("n"),
            connectors.report(
                [ConnectorReport(connector="n", worker="w", revision=1, state="failed")]
            ),
        ):
            with pytest.raises(PermissionDenied):
                await change
    async with client_of(guarded, WORKER) as worker:
        await worker.connectors.pause("n")


async def test_connector_of_an_invisible_topic_is_not_known(guarded):
    stranger = Principal("stranger", "token")
    async with client_of(guarded, stranger) as client:
        assert (await client.connectors.list()).connectors == ()
        with pytest.raises(NotFound):
            await client.connectors.describe("n")
        with pytest.raises(NotFound):
            await client.security.check_access("produce", "/shop/a", connector="n")
