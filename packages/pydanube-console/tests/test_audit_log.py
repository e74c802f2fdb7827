"""The records of the audit log are read as they are added."""

import json

import pytest

import pydanube
from pydanube_console.audit_log import AuditLog, is_of, outcome_badge, render_changes
from support.fakes.secured import bootstrap_key, secured
from support.worlds.current import memory_broker


class Topic:
    """A topic of records."""

    base_offset = 0

    def __init__(self, *records):
        self.records = list(records)

    @property
    def end_offset(self):
        return len(self.records)


class Batch:
    def __init__(self, records):
        self.payloads = [json.dumps(each).encode() for each in records]


class Client:
    """A client that reads one topic, and counts what it reads."""

    def __init__(self, topic):
        self.topic = topic
        self.starts = []

    @property
    def topics(self):
        return self

    async def describe(self, _):
        return self.topic

    async def read(self, _, *, start, end):
        self.starts.append(start)
        yield Batch(self.topic.records[start:end])


def record(number, resource="/default/t"):
    return {"time": number, "resource": resource, "operation": f"<b>{number}"}


async def test_records_are_read_once():
    topic = Topic(*map(record, range(10)))
    client = Client(topic)
    log = AuditLog(client, 4)
    await log.update()
    topic.records.append(record(10))
    await log.update()
    assert client.starts == [6, 10]
    assert [each["time"] for each in log.records] == [7, 8, 9, 10]


async def test_broker_without_security_has_no_audit_log():
    async with memory_broker() as broker, broker.connect() as client:
        log = AuditLog(client)
        await log.update()
        assert "no audit log" in log.problem
        assert "no audit log" in render_changes(log, "/default/t")


async def test_operations_on_a_topic_are_shown_as_text():
    topic = Topic(record(1), record(2, "/default/other"), record(3))
    log = AuditLog(Client(topic))
    await log.update()
    shown = render_changes(log, "/default/t")
    assert "&lt;b&gt;3" in shown
    assert "&lt;b&gt;1" in shown
    assert "&lt;b&gt;2" not in shown


def test_partitions_and_several_resources_belong_to_a_topic():
    assert is_of("/default/t", "/default/t-part-3")
    assert is_of("/default/t", "/default/a /default/t")
    assert not is_of("/default/t", "/default/t2")


def test_outcome_has_a_colour():
    assert "badge-good" in outcome_badge({"outcome": "done"})
    assert "badge-warn" in outcome_badge({"outcome": "refused"})


@pytest.mark.slow
async def test_operations_of_a_broker_are_found(tmp_path):
    async with (
        secured(tmp_path) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as client,
    ):
        await client.topics.create("/default/t", partitions=2)
        await client.topics.configure("/default/t", seal_age_s=5.0)
        log = AuditLog(client)
        while "configure_topic" not in render_changes(log, "/default/t"):
            await log.update()
        shown = render_changes(log, "/default/t")
        assert "bootstrap" in shown
        assert "badge-good" in shown
        # The value that was set, as text of HTML.
        assert "seal_age" in shown
        assert render_changes(log, "/default/other").count("<tr>") == 0
