"""Reads of etcd that share requests."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.aio.tasks import gather
from pydanube.model.errors import Closed
from pydanube_broker.metadata.etcd.client import RANGE, TXN, open_client
from pydanube_broker.metadata.etcd.failures import AnswerTooLarge
from pydanube_broker.metadata.etcd.reading import RANGES_MAX, open_reader
from pydanube_broker.metadata.etcd.store import EtcdStore
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.store import Put
from support.servers.etcd import EtcdMember, config_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydanube_broker.metadata.etcd.client import EtcdClient

pytestmark = pytest.mark.e2e

THINGS = prefix_of("/things/", int)


class CountingClient:
    """A client that counts requests, and finds all answers of several reads large."""

    def __init__(self, client: EtcdClient) -> None:
        self.counts: Counter[str] = Counter()
        self.is_large = False
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def ask(self, method: Any, request: Any, attempts: Any = None) -> Any:
        self.counts[method.path] += 1
        if self.is_large and method is TXN:
            raise AnswerTooLarge("large")
        return await self._client.ask(method, request, attempts)


@asynccontextmanager
async def counted(etcd: EtcdMember) -> AsyncIterator[tuple[CountingClient, EtcdStore]]:
    config = config_of(etcd)
    async with open_client(config) as opened:
        client: Any = CountingClient(opened)
        async with open_reader(client) as reader:
            store = EtcdStore(config, client, reader)
            await store.transaction(
                [], [Put(THINGS.key(f"{number:03}"), number) for number in range(90)]
            )
            client.counts.clear()
            yield client, store
            await store.close()


async def test_reads_of_one_moment_share_requests(etcd: EtcdMember) -> None:
    async with counted(etcd) as (client, store):
        found = await gather(
            store.get(THINGS.key(f"{number:03}")) for number in range(RANGES_MAX + 50)
        )
        values = [None if each is None else each.value for each in found]
        assert values == [*range(90), *[None] * (RANGES_MAX - 40)]
        assert client.counts == {TXN.path: 2}


async def test_a_single_read_is_sent_alone(etcd: EtcdMember) -> None:
    async with counted(etcd) as (client, store):
        assert len(await store.scan(THINGS)) == 90
        assert client.counts == {RANGE.path: 1}


async def test_reads_whose_answer_is_too_large_are_sent_alone(etcd: EtcdMember) -> None:
    async with counted(etcd) as (client, store):
        client.is_large = True
        every = await gather(store.scan(THINGS) for _ in range(3))
        assert [len(each) for each in every] == [90, 90, 90]
        assert client.counts == {TXN.path: 1, RANGE.path: 3}


async def test_reads_after_the_end_fail(etcd: EtcdMember) -> None:
    async with counted(etcd) as (_, store):
        pass
    with pytest.raises(Closed):
        await store.get(THINGS.key("001"))
