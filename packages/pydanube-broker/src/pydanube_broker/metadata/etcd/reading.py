"""
Small reads that share requests.

A request costs far more than a read of one key, and brokers read a few keys for each of
many topics at the same time.  Reads that are asked for in one turn of the event loop
are one request; while several requests are on their way, further reads wait for the
next one.  A read that comes alone is sent at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydanube.aio.tasks import TaskScope, gather, task_scope
from pydanube.model.errors import Closed
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.client import RANGE, TXN, EtcdClient
from pydanube_broker.metadata.etcd.failures import AnswerTooLarge

RANGES_MAX = 100
"""How many reads one request has: etcd allows 128 operations by default."""

REQUESTS_MAX = 4
"""How many requests are on their way before reads wait and share the next one."""

_Read = tuple[pb.RangeRequest, "asyncio.Future[pb.RangeResponse]"]


@asynccontextmanager
async def open_reader(client: EtcdClient) -> AsyncIterator[RangeReader]:
    """Open a reader; at the end, reads that wait raise ``Closed``."""
    async with task_scope() as tasks:
        reader = RangeReader(client, tasks)
        try:
            yield reader
        finally:
            reader.close()


class RangeReader:
    """Reads ranges of keys; see the module."""

    def __init__(self, client: EtcdClient, tasks: TaskScope) -> None:
        self._client = client
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Read] = deque()
        self._asked: dict[asyncio.Future[pb.RangeResponse], None] = {}
        self._request_count = 0
        self._is_scheduled = False
        self._is_closed = False

    async def read(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """
        Return the answer to *request*, which must be for a few keys only.

        Raises: As ``EtcdClient.ask``.
        """
        if self._is_closed:
            raise _closed()
        outcome: asyncio.Future[pb.RangeResponse] = self._loop.create_future()
        self._waiting.append((request, outcome))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_waiting)
        return await outcome

    def close(self) -> None:
        """Let all reads fail."""
        self._is_closed = True
        outcomes = [*self._asked, *(outcome for _, outcome in self._waiting)]
        self._waiting.clear()
        for outcome in outcomes:
            if not outcome.done():
                outcome.set_exception(_closed())

    def _send_waiting(self) -> None:
        self._is_scheduled = False
        while self._waiting and self._request_count < REQUESTS_MAX:
            count = min(RANGES_MAX, len(self._waiting))
            reads = [self._waiting.popleft() for _ in range(count)]
            reads = [each for each in reads if not each[1].cancelled()]
            if not reads:
                continue
            self._asked.update((outcome, None) for _, outcome in reads)
            self._request_count += 1
            self._tasks.run(self._send(reads), "read metadata")

    async def _send(self, reads: list[_Read]) -> None:
        try:
            await self._ask(reads)
        except Exception as error:  # noqa: BLE001  # Each of the callers gets it.
            for _, outcome in reads:
                if not outcome.done():
                    outcome.set_exception(error)
        finally:
            for _, outcome in reads:
                self._asked.pop(outcome, None)
            self._request_count -= 1
            self._send_waiting()

    async def _ask(self, reads: list[_Read]) -> None:
        if len(reads) == 1:
            request, outcome = reads[0]
            _complete(outcome, await self._client.ask(RANGE, request))
            return
        together = pb.TxnRequest()
        for request, _ in reads:
            together.success.add().request_range.CopyFrom(request)
        try:
            answer = await self._client.ask(TXN, together)
        except AnswerTooLarge:
            await gather(self._ask_alone(*each) for each in reads)
            return
        for (_, outcome), each in zip(reads, answer.responses, strict=True):
            _complete(outcome, each.response_range)

    async def _ask_alone(
        self, request: pb.RangeRequest, outcome: asyncio.Future[pb.RangeResponse]
    ) -> None:
        try:
            _complete(outcome, await self._client.ask(RANGE, request))
        except AnswerTooLarge as error:
            if not outcome.done():
                outcome.set_exception(error)


def _complete(
    outcome: asyncio.Future[pb.RangeResponse], answer: pb.RangeResponse
) -> None:
    if not outcome.done():
        outcome.set_result(answer)


def _closed() -> Closed:
    return Closed("the metadata store is closed")
