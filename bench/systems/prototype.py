"""The least that a durable broker does, as a yardstick for pydanube."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.plan import WORKLOADS
from bench.servers import HOST, accepts, free_port, running
from bench.systems.inbox import Inbox
from bench.systems.system import (
    ROOT,
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)
from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

IN_FLIGHT_MAX = 32
CANNOT = {
    name: "the prototype has one topic, without history, and batches only"
    for name in WORKLOADS
    if name not in {"both", "program"}
}


class Prototype(System):
    """The broker of ``bench/prototype.py``."""

    name = "prototype"
    title = "bare prototype"
    client = "pyarrow"
    how = "batches of 1,000, 32 on their way; an object for each message"

    def variants(self) -> Sequence[Variant]:
        return (
            Variant(
                name="synced",
                durability=Durability.SYNCED,
                setting="fdatasync for each group",
                cannot=CANNOT,
            ),
            Variant(
                name="written",
                durability=Durability.PAGE_CACHE,
                setting="no fdatasync",
                cannot=CANNOT,
            ),
        )

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "prototype of 2026-11-21"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        port = free_port()
        command = [sys.executable, "-m", "bench.prototype", str(port)]
        command += [str(directory / "journal"), variant.name]
        with running(
            command,
            directory / "log",
            is_ready=lambda: accepts(port),
            environ={"PYTHONPATH": str(ROOT)},
        ) as pid:
            yield Server(endpoint={"port": port}, pids=(pid,))

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return PrototypeDriver(endpoint)


class PrototypeDriver(Driver):
    """Whole batches as Arrow record batches, with a connection for each end."""

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        """Do nothing: there is one topic."""

    async def delete(self, topics: Sequence[str]) -> None:
        """Do nothing: the journal is removed with the server."""

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        from bench.prototype import RECEIPT, FrameProtocol  # noqa: PLC0415

        class Receipts(FrameProtocol):
            in_flight = 0

            def __init__(self) -> None:
                super().__init__()
                self.received = asyncio.Event()

            def on_frame(
                self, kind: int, number: int, count: int, crc: int, body: bytes
            ) -> None:
                assert kind == RECEIPT
                self.in_flight -= 1
                self.received.set()

        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(
            Receipts, HOST, self.endpoint["port"]
        )
        try:
            yield PrototypePublisher(protocol)
        finally:
            transport.close()

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        import pyarrow as pa  # noqa: PLC0415

        from bench.prototype import HEADER, SUBSCRIBE, FrameProtocol  # noqa: PLC0415

        inbox = Inbox()
        columns = schema()

        class Deliveries(FrameProtocol):
            def on_frame(
                self, kind: int, number: int, count: int, crc: int, body: bytes
            ) -> None:
                rows = pa.ipc.read_record_batch(pa.py_buffer(body), columns)
                messages = [
                    PrototypeMessage(number + index, payload)
                    for index, payload in enumerate(rows.column(1).to_pylist())
                ]
                inbox.put_many([each.payload for each in messages], None)

        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            Deliveries, HOST, self.endpoint["port"]
        )
        transport.write(HEADER.pack(0, SUBSCRIBE, 0, 0, 0))
        try:
            yield PrototypeConsumer(inbox)
        finally:
            transport.close()


class PrototypeMessage:
    """A message, with as little as a program needs."""

    __slots__ = ("offset", "payload")

    def __init__(self, offset: int, payload: bytes) -> None:
        self.offset = offset
        self.payload = payload


class PrototypePublisher(Publisher):
    """Sends batches, of which few are in flight."""

    def __init__(self, receipts: Any) -> None:
        self._receipts = receipts
        self._columns = schema()
        # The first array of the process takes a second, in which pandas is imported.
        self._encode([b""])

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        await self._wait_below(IN_FLIGHT_MAX)
        self._receipts.in_flight += 1
        self._receipts.transport.write(self._encode(payloads))

    def _encode(self, payloads: list[bytes]) -> bytes:
        import pyarrow as pa  # noqa: PLC0415
        from crc32c import crc32c  # noqa: PLC0415

        from bench.prototype import HEADER, PUBLISH  # noqa: PLC0415

        now = time.time_ns() // 1000
        count, columns = len(payloads), self._columns
        arrays = [
            pa.array([now] * count, columns.field(0).type),
            pa.array(payloads, columns.field(1).type),
        ]
        body = pa.record_batch(arrays, schema=columns).serialize().to_pybytes()
        frame: bytes = HEADER.pack(len(body), PUBLISH, 0, count, crc32c(body)) + body
        return frame

    async def flush(self) -> None:
        await self._wait_below(1)

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self.send(topic, [payload])
        await self.flush()

    async def _wait_below(self, count: int) -> None:
        while self._receipts.in_flight >= count:
            self._receipts.received.clear()
            await self._receipts.received.wait()


class PrototypeConsumer(Consumer):
    """Receives what its connection has put into the inbox."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads, _ = await self._inbox.take(timeout_s)
        return payloads

    async def ack(self) -> None:
        """Do nothing: there are no acknowledgements."""


def schema() -> Any:
    """Return the columns of a batch."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema(
        [
            pa.field("publish_time", pa.timestamp("us")),
            pa.field("payload", pa.binary()),
        ]
    )


SYSTEM = Prototype()
