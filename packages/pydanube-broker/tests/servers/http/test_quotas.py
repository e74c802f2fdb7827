"""Quotas on the HTTP port: requests wait for a while, and are refused beyond that."""

from __future__ import annotations

import asyncio

import httpx

from pydanube.security.quotas import Quota, QuotaTarget
from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of
from pydanube_broker.operations import quota_holds
from pydanube_broker.servers.http import quotas as http_quotas
from pydanube_broker.servers.http.app import BrokerState
from pydanube_broker.servers.http.server import open_http
from support.fakes.http_api import State, http_of
from support.fakes.storages import until

ANONYMOUS = QuotaTarget.parse("anonymous")


async def test_requests_wait_until_they_are_due(broker, api, monkeypatch):
    monkeypatch.setattr(quota_holds, "RECHECK_S", 0.001)
    quotas = broker.broker.quotas
    await quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    await api.get("/list_namespaces")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(api.get("/list_namespaces"))
        await until(lambda: quotas.describe(ANONYMOUS).throttled_s > 0)
        assert not waiting.done()
        await quotas.remove(ANONYMOUS)


async def test_request_that_would_wait_too_long_is_refused(broker, api, monkeypatch):
    monkeypatch.setattr(http_quotas, "HOLD_S_MAX", -1.0)
    await broker.broker.quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    error = await api.get("/list_namespaces", 429)
    assert error["code"] == "quota_exceeded"
    assert "the quota requests_per_s of anonymous is 1" in error["message"]


async def test_refusals_have_the_form_of_the_interface(broker, monkeypatch):
    monkeypatch.setattr(http_quotas, "HOLD_S_MAX", -1.0)
    await broker.broker.quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    async with http_of(State(broker.broker)) as http:
        registry = await http.get("/subjects")
        assert (registry.status_code, registry.json()["error_code"]) == (429, 42901)
        assert "requests_per_s of anonymous" in registry.json()["message"]
        iceberg = await http.get("/iceberg/v1/config")
        assert (iceberg.status_code, iceberg.json()["error"]["code"]) == (429, 429)
    assert broker.broker.quotas.describe(ANONYMOUS).refused_count == 2


async def test_probes_do_not_count(broker):
    await broker.broker.quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    async with http_of(State(broker.broker)) as http:
        for _ in range(20):
            assert (await http.get("/readyz")).status_code == 200
    assert broker.broker.quotas.describe(ANONYMOUS).throttled_s == 0


async def test_connections_beyond_the_quota_are_refused(broker):
    state = BrokerState()
    state.on_serving(broker.broker, broker.server, ())
    await broker.broker.quotas.set(ANONYMOUS, Quota(connections=1))
    async with open_http("127.0.0.1", 0, state) as port:
        url = f"http://127.0.0.1:{port}/api/v1/list_namespaces"
        async with httpx.AsyncClient() as first:
            assert (await first.get(url)).status_code == 200
            async with httpx.AsyncClient() as second:
                assert (await second.get(url)).status_code == 429
            assert (await first.get(url)).status_code == 200
        meter = broker.broker.quotas.describe(ANONYMOUS)
        assert meter.refused_count == 1


async def test_request_that_another_process_has_charged_is_not_charged_again(broker):
    memory = memoryview(bytearray(bytes_of(2)))
    quotas = broker.broker.quotas
    quotas.shared = SharedCounts(memory, number=2, count=2, proof="secret")
    state = BrokerState()
    state.on_serving(broker.broker, broker.server, ())
    await quotas.set(ANONYMOUS, Quota(connections=1))
    # The connection of the client is at the first process.
    SharedCounts(memory, number=1, count=2).of("anonymous").add("connections", 1)
    async with open_http("127.0.0.1", 0, state) as port:
        url = f"http://127.0.0.1:{port}/api/v1/list_namespaces"
        async with httpx.AsyncClient() as http:
            for proof, status in (("1", 429), ("secret", 200)):
                answer = await http.get(url, headers={"x-danube-forwarded": proof})
                assert answer.status_code == status
    assert quotas.describe(ANONYMOUS).used["connections"] == 1
