"""
The steps of clients: the frames of their connections, one after the other.

A world stands between its clients and its brokers, and each frame of a client waits
until the world has let it pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import TaskScope
from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.frames import FrameReader, RawFrame, header
from pydanube.wire.native.kinds import OPERATIONS, Kind, Side, is_repeatable
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import Need
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.in_process import PipeEnd
from pydanube_broker.servers.native.server import NativeServer

FRAME_BYTES_MAX = 128 * 1024 * 1024
"""Longer than any test allows its clients; the broker checks the length of frames."""

TURNS = 3
"""In so many turns of the event loop, what a client has sent arrives."""

_GOODBYE = StreamConnection(Side.BROKER).send(
    Kind.GOODBYE, pb.Goodbye(reason="the broker is stopping")
)
_NO_STEPS = frozenset({Kind.HELLO, Kind.PING, Kind.GOODBYE})


class Steps:
    """What the clients of a world do; worlds derive from it."""

    def __init__(self) -> None:
        self._once: set[tuple[object, int]] = set()
        self._connections: dict[SteppedConnection, None] = {}

    async def may_break(self, step: Step) -> bool:
        """
        Return whether connections may break before *step*, and no client can notice it.

        Clients do not repeat every request: they report that its answer was lost.
        """
        if step.is_of_thread and not step.frame.correlation:
            # The thread goes on, and may send such a request at this moment.
            return False
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return not self._once

    def break_connections(self, server: NativeServer, *, is_stop: bool = False) -> None:
        """Break the connections to *server*, which may say that the broker stops."""
        for each in list(self._connections):
            if each.server is server:
                each.break_off(is_stop=is_stop)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Break no connections during the body, in which a call is on its way."""
        call = (object(), 0)
        self._once.add(call)
        try:
            yield
        finally:
            self._once.discard(call)

    def on_connected(self, connection: SteppedConnection) -> None:
        """Remember a connection, which does not break before the broker's welcome."""
        self._connections[connection] = None
        # Programs do not repeat the first connection that they make.
        self._once.add((connection, 0))

    async def on_step(self, server: NativeServer, step: Step) -> None:
        """Do what happens before *step* reaches *server*."""
        raise NotImplementedError

    def on_sent(self, connection: SteppedConnection, step: Step) -> None:
        """Remember a request that clients do not repeat until it is answered."""
        if step.is_once:
            self._once.add((connection, step.frame.correlation))

    def on_answer(self, connection: SteppedConnection, frame: RawFrame) -> None:
        """Forget a request that is answered."""
        self._once -= {(connection, 0), (connection, frame.correlation)}

    def on_lost(self, connection: SteppedConnection) -> None:
        """Forget a connection and its requests."""
        self._connections.pop(connection, None)
        self._once = {each for each in self._once if each[0] is not connection}


class Step:
    """A frame of a client."""

    def __init__(self, frame: RawFrame, *, is_of_thread: bool = False) -> None:
        self.frame = frame
        self.is_of_thread = is_of_thread
        """Whether the client runs in another thread than the brokers."""
        self.kind = frame.kind
        self.message: Message | None = None
        """The request, if the frame is one."""
        self.targets: Sequence[Need] = ()
        """What it needs besides what the operation and the request say."""
        if frame.kind in OPERATIONS:
            assert frame.kind.body is not None
            self.message = frame.kind.body.FromString(bytes(frame.body))

    @classmethod
    def of_call(cls, kind: Kind, request: Message, targets: Sequence[Need]) -> Step:
        """Return the step of a call that reaches the broker by another listener."""
        step = cls(RawFrame(kind, 0, 1, bytearray(request.SerializeToString())))
        step.targets = targets
        return step

    @property
    def is_once(self) -> bool:
        """Whether it is a request that clients do not repeat."""
        return self.message is not None and not is_repeatable(self.message)


class SteppedConnection(asyncio.BufferedProtocol):
    """The broker's side of a client's connection, whose frames are steps."""

    def __init__(self, server: NativeServer, tasks: TaskScope, steps: Steps) -> None:
        self.server = server
        self._tasks = tasks
        self._steps = steps
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._received: asyncio.Queue[Step | None] = asyncio.Queue()
        self._client: Any = None
        self._broker: Any = None

    def connection_made(self, transport: Any) -> None:
        self._client = transport
        answers = _Answers(transport, lambda frame: self._steps.on_answer(self, frame))
        self._broker, _ = PipeEnd.connect(answers, NativeConnection(self.server))
        self._steps.on_connected(self)
        self._tasks.run(self._pass_on())

    def break_off(self, *, is_stop: bool) -> None:
        """
        Break the connection, and let a client of this thread know it at once.

        A client that does not know it could send a request that it does not repeat.
        """
        if isinstance(self._client, PipeEnd):
            self._client.end_at_once(_GOODBYE if is_stop else b"")
        else:
            self._client.abort()
        self._broker.abort()

    def get_buffer(self, _: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.add(nbytes)
        while (frame := self._reader.next_frame()) is not None:
            is_of_thread = not isinstance(self._client, PipeEnd)
            step = Step(frame, is_of_thread=is_of_thread)
            self._steps.on_sent(self, step)
            self._received.put_nowait(step)

    def connection_lost(self, _: Exception | None) -> None:
        self._reader.release()
        self._steps.on_lost(self)
        self._received.put_nowait(None)

    async def _pass_on(self) -> None:
        """Pass the frames on, one after the other; then disconnect."""
        while (step := await self._received.get()) is not None:
            if step.kind not in _NO_STEPS:
                await self._steps.on_step(self.server, step)
            self._broker.write(_bytes_of(step.frame))
        self._broker.close()


class _Answers(asyncio.BufferedProtocol):
    """What the broker sends, which goes to the client at once."""

    def __init__(self, client: Any, on_frame: Callable[[RawFrame], None]) -> None:
        self._client = client
        self._on_frame = on_frame
        self._reader = FrameReader(FRAME_BYTES_MAX)

    def get_buffer(self, _: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.add(nbytes)
        while (frame := self._reader.next_frame()) is not None:
            self._on_frame(frame)
            if not self._client.is_closing():
                self._client.write(_bytes_of(frame))

    def connection_lost(self, _: Exception | None) -> None:
        self._reader.release()
        self._client.close()


def _bytes_of(frame: RawFrame) -> bytes:
    start = header(frame.kind, frame.channel, frame.correlation, len(frame.body))
    return start + bytes(frame.body)


def dial_in_steps(
    server: NativeServer, tasks: TaskScope, steps: Steps
) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that connects a client to *server*, as ``dial_in_process``."""

    async def dial(factory: Callable[[], Any]) -> Any:
        connection = factory()
        PipeEnd.connect(connection, SteppedConnection(server, tasks, steps))
        return connection

    return dial
