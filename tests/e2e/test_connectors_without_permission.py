"""Connectors whose permission is taken away while they run, and given again."""

from __future__ import annotations

import sys

import pytest

from pydanube.security.permissions import Permission
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.fakes.guarded_clusters import running as guarded_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/shop/orders"
URL = "danube://b,a?allow_plaintext_credentials=true"
COUNT = 60
OWN = f'''
import asyncio
from pydanube_connect import Batch, Record, Sink, Source

WRITTEN = []
MAY_GO_ON = asyncio.Event()
IS_HALF = asyncio.Event()


class Numbers(Source):
    """Counts, and waits in the middle."""

    async def batches(self, position):
        for number in range(position or 0, {COUNT}):
            if number == {COUNT // 2}:
                IS_HALF.set()
                await MAY_GO_ON.wait()
            yield Batch([Record(value=str(number))], position=number + 1)


class Collect(Sink):
    """Keeps what it is given."""

    async def write(self, messages):
        WRITTEN.extend(int(each.payload) for each in messages)
'''
TEXT = f"""
connectors:
  numbers: {{kind: "own.py:Numbers", topic: {TOPIC}, retries: {{backoff: 1ms}}}}
  out: {{kind: "own.py:Collect", topic: {TOPIC}, retries: {{backoff: 1ms}}}}
"""


async def test_the_error_names_the_permission_and_nothing_is_lost(
    tmp_path, monkeypatch
):
    (tmp_path / "own.py").write_text(OWN)
    async with guarded_cluster({}) as guarded:
        await guarded.root.namespaces.create("shop")
        await guarded.let("shop", "/shop/*", *Permission)
        monkeypatch.setenv("DANUBE_TOKEN", "alice")
        connectors = declared(TEXT, URL, tmp_path)
        module = sys.modules[connectors[0].kind.__module__]
        async with running(connectors) as until:
            await module.IS_HALF.wait()
            await until(lambda all_: all_["out"].messages >= COUNT // 2)
            await guarded.let("shop", "/shop/*", Permission.DESCRIBE)
            module.MAY_GO_ON.set()
            found = await until(
                lambda all_: all(each.state.is_over for each in all_.values())
            )
        for name, missing in (("numbers", "produce"), ("out", "consume")):
            assert found[name].state is State.FAILED
            assert f"no binding grants {missing} on {TOPIC}" in found[name].error
            assert found[name].dead_letters == 0
        await guarded.let("shop", "/shop/*", *Permission)
        connectors = declared(TEXT, URL, tmp_path)
        async with running(connectors) as until:
            await until(lambda all_: all_["numbers"].state.is_over)
            await until(lambda _: set(module.WRITTEN) == set(range(COUNT)))
        assert list(map(int, await guarded.read(TOPIC))) == list(range(COUNT))
