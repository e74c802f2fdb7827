"""The audit log: what it has, and that requests do not wait for it."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from pydanube.model.errors import (
    DiskFull,
    InvalidName,
    InvalidRequest,
    PermissionDenied,
)
from pydanube.security.policy import Binding
from pydanube.security.principals import Principal
from pydanube.security.quotas import Quota
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.governance import audit
from pydanube_broker.broker.governance.audit import (
    AUDIT_TOPIC,
    BATCH_MAX,
    AuditLimits,
    AuditLog,
    Outcome,
    open_audit,
)
from pydanube_broker.operations.authorization import DETAILS_BYTES_MAX, details_of
from pydanube_broker.testing import memory_broker
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.fakes.storages import until

ALICE = Principal("alice", "token")


def record(log, operation="delete_topic", **more):
    fields = {
        "principal": ALICE,
        "address": "10.0.0.7:1",
        "listener": "stream",
        "operation": operation,
        "resource": "/shop/orders",
        "outcome": Outcome.DONE,
    }
    log.record(**(fields | more))


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_records_are_lines_of_the_file(tmp_path):
    path = tmp_path / "audit.jsonl"
    async with open_audit(lambda: 1_000_000, path=path) as log:
        record(log)
        log.record_failed_authentication(
            address="10.0.0.8", listener="http", reason="the token has expired"
        )
    first, second = lines_of(path)
    assert first == {
        "time": "1970-01-01T00:00:01.000+00:00",
        "principal": "alice",
        "method": "token",
        "address": "10.0.0.7:1",
        "listener": "stream",
        "operation": "delete_topic",
        "resource": "/shop/orders",
        "outcome": "done",
        "reason": "",
        "details": "",
    }
    assert (second["operation"], second["outcome"]) == ("authenticate", "refused")
    assert path.stat().st_mode & 0o077 == 0


async def test_file_may_be_renamed_at_any_time(tmp_path):
    path = tmp_path / "audit.jsonl"
    async with open_audit(lambda: 0, path=path) as log:
        record(log, "first")
        await log.flush()
        path.rename(tmp_path / "old.jsonl")
        record(log, "second")
    assert [line["operation"] for line in lines_of(path)] == ["second"]
    assert [line["operation"] for line in lines_of(tmp_path / "old.jsonl")] == ["first"]


async def test_record_cannot_forge_another_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    async with open_audit(lambda: 0, path=path) as log:
        record(log, reason='x"}\n{"operation":"forged"}' + "y" * 5000)
    [line] = lines_of(path)
    assert line["operation"] == "delete_topic"
    assert len(line["reason"]) == audit.TEXT_MAX


async def test_records_beyond_the_bound_are_dropped_and_counted(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(lambda: 0, path=path, limits=AuditLimits(queued_max=3))
    for _ in range(5):
        record(log)
    await log.flush()
    assert (log.recorded_count, log.dropped_count) == (3, 2)
    *_, last = lines_of(path)
    assert last["operation"] == "audit"
    assert last["reason"].startswith("2 records were dropped")


async def test_place_that_hangs_or_fails_holds_up_nothing(tmp_path):
    limits = AuditLimits(write_timeout_s=0.3)
    failing = [asyncio.Event().wait, disk_is_full]

    async def publish(_):
        await failing.pop(0)()

    path = tmp_path / "audit.jsonl"
    log = AuditLog(lambda: 0, path=path, publish=publish, limits=limits)
    for _ in range(2):
        record(log)
        await log.flush()
    assert log.failed_count == 2
    assert len(lines_of(path)) == 2


async def disk_is_full():
    raise DiskFull("no space left")


async def test_file_that_cannot_be_written_is_counted(tmp_path):
    async with open_audit(lambda: 0, path=tmp_path / "no" / "audit") as log:
        record(log)
    assert log.failed_count == 1


async def test_repeated_refusals_are_counted_and_summarized(tmp_path):
    path = tmp_path / "audit.jsonl"
    async with open_audit(lambda: 0, path=path) as log:
        for port in range(30):
            # Each connection has another port.
            record(log, outcome=Outcome.REFUSED, address=f"10.0.0.7:{port}")
        record(log, outcome=Outcome.REFUSED, address="10.0.0.8:1")
        record(log)
        assert (log.recorded_count, log.suppressed_count) == (22, 10)
    *_, other, done, summary = lines_of(path)
    assert (other["address"], done["outcome"]) == ("10.0.0.8:1", "done")
    assert (summary["operation"], summary["outcome"]) == ("audit", "refused")
    assert (summary["principal"], summary["address"]) == ("alice", "10.0.0.7")
    assert summary["reason"].startswith("10 more refusals")


async def test_summary_is_written_when_its_time_has_come(tmp_path):
    path = tmp_path / "audit.jsonl"
    limits = AuditLimits(summary_s=0.001)
    async with open_audit(lambda: 0, path=path, limits=limits) as log:
        for _ in range(21):
            record(log, outcome=Outcome.REFUSED)
        await until(lambda: log.recorded_count == 21)
        await log.flush()
        assert "1 more refusals" in lines_of(path)[-1]["reason"]


async def test_summary_of_many_sources_is_short(tmp_path):
    path = tmp_path / "audit.jsonl"
    limits = AuditLimits(summaries_max=3)
    async with open_audit(lambda: 0, path=path, limits=limits) as log:
        for host in range(5):
            for _ in range(21 + host):
                address = f"10.0.0.{host}:1"
                record(log, outcome=Outcome.REFUSED, address=address)
    found = [
        (each["address"], each["reason"].split()[0])
        for each in lines_of(path)
        if each["operation"] == "audit"
    ]
    assert found == [("10.0.0.4", "5"), ("10.0.0.3", "4"), ("", "6")]


async def test_log_without_a_place_records_nothing():
    log = AuditLog(lambda: 0)
    record(log)
    assert not log.is_enabled
    assert log.recorded_count == 0


@pytest.fixture
async def guarded(tmp_path):
    async with guarded_broker(audit_file=tmp_path / "audit.jsonl") as broker:
        yield broker


async def test_requests_of_clients_are_recorded(guarded, tmp_path):
    async with client_of(guarded, ROOT) as root:
        await root.topics.create("/default/orders")
        await root.topics.describe("/default/orders")
        async with client_of(guarded, ALICE) as client:
            with pytest.raises(PermissionDenied):
                await client.topics.delete("/default/orders")
            with pytest.raises(PermissionDenied):
                await client.security.add_binding("user:alice", ["admin"], ["*"])
        await root.security.set_quota("user:alice", Quota(connections=9))
    await guarded.broker.audit.flush()
    found = {
        (each["principal"], each["operation"], each["resource"], each["outcome"])
        for each in lines_of(tmp_path / "audit.jsonl")
    }
    assert found == {
        ("root", "create_topic", "/default/orders", "done"),
        ("alice", "delete_topic", "/default/orders", "refused"),
        ("alice", "add_binding", "", "refused"),
        ("root", "set_quota", "user:alice", "done"),
    }


async def test_records_have_the_values_that_were_set(guarded, tmp_path):
    async with client_of(guarded, ROOT) as root:
        await root.topics.create("/default/orders")
        await root.topics.configure("/default/orders", seal_age_s=5.0)
    await guarded.broker.audit.flush()
    *_, changed = lines_of(tmp_path / "audit.jsonl")
    details = json.loads(changed["details"])
    assert details["changes"] == ["seal_age_s"]
    assert details["settings"] == {"seal_age_s": 5.0}


def test_details_of_a_request_have_no_credentials_and_are_bounded():
    token = pb.Authenticate(token="secret")
    assert details_of(token) == "{}"
    large = pb.CreateTopic(topic="t" * DETAILS_BYTES_MAX)
    assert details_of(large) == f"a request of {large.ByteSize()} bytes"
    # The body of a request over HTTP.
    body = {"name": "t" * DETAILS_BYTES_MAX, "token": "secret"}
    assert details_of(body) == f"a request of {DETAILS_BYTES_MAX + 11} bytes"


async def test_failed_requests_are_recorded_with_the_reason(tmp_path):
    path = tmp_path / "audit.jsonl"
    # Without security, clients may do everything, but a file is given.
    async with memory_broker(audit_file=path) as broker, broker.connect() as client:
        with pytest.raises(InvalidRequest):
            await client.namespaces.delete("default")
        with pytest.raises(InvalidName):
            await client.requester.send_request(pb.DeleteTopic(topic="/a/../b"))
        await broker.broker.audit.flush()
    first, second = lines_of(path)
    assert (first["operation"], first["outcome"]) == ("delete_namespace", "failed")
    assert "cannot be deleted" in first["reason"]
    assert (second["resource"], second["outcome"]) == ("", "failed")


async def test_topic_has_the_records_and_needs_a_binding(guarded):
    access = guarded.broker.access
    async with client_of(guarded, ROOT) as root:
        await root.topics.create("/default/orders")
        await guarded.broker.audit.flush()
        topic = await guarded.broker.topics.get(AUDIT_TOPIC)
        assert topic.policy.is_reliable
        await access.add_binding(
            ROOT, Binding("user:alice", ("consumer",), ("/*/*",), "b")
        )
        async with client_of(guarded, ALICE) as client:
            with pytest.raises(PermissionDenied):
                async with client.consumer(str(AUDIT_TOPIC), subscription="s"):
                    pass
        async with client_of(guarded, ROOT) as auditor:
            [message, *_] = await anext(auditor.read(str(AUDIT_TOPIC)))
            assert json.loads(message.payload)["operation"] == "create_topic"


async def test_broker_that_stops_leaves_no_outcome_of_the_audit_topic_behind(tmp_path):
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        async with guarded_broker(audit_file=tmp_path / "audit") as broker:
            for number in range(3 * BATCH_MAX):
                record(broker.broker.audit, f"operation {number}")
            # It stops while they are written, and writes the rest.
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert reported == []
    assert len(lines_of(tmp_path / "audit")) == 3 * BATCH_MAX


async def test_what_is_being_written_at_the_end_is_not_lost():
    begun, gate, published = asyncio.Event(), asyncio.Event(), []

    async def publish(lines):
        begun.set()
        await gate.wait()
        published.extend(json.loads(each)["operation"] for each in lines)

    loop = asyncio.get_running_loop()
    async with open_audit(lambda: 0, publish=publish) as log:
        record(log, "first")
        await begun.wait()
        record(log, "last")
        # The body ends while the first record is written.
        loop.call_soon(gate.set)
    assert published == ["first", "last"]
