"""
Golden transcripts of the server for clients of Danube: ``client/*.txt``.

A line at the margin is a request, the indented lines under it are the answer: the
message, or the status and its text.  ``#`` begins a comment.  A number that the
broker gave is written as ``producer(NAME)`` or ``consumer(NAME)``.  What is no single
request, such as reading a stream, begins with ``@``; see the methods of
``Transcript``.  To accept changed answers: ``pytest tests/scenarios --rewrite``, and
read the diff.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format
from google.protobuf.message_factory import GetMessageClass

from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2
from support.drivers.danube_calls import open_danube_server, stream_count
from support.fakes.grpc_calls import connected
from support.worlds.current import memory_broker
from support.worlds.grpc_calls import permit

pytestmark = pytest.mark.e2e

SCENARIOS = sorted((Path(__file__).parent / "client").glob("*.txt"))
TIMEOUT_S = 120
NOTHING_AFTER_S = 0.1

PACKAGES = {
    name: file.DESCRIPTOR.package
    for file in (pb, schema_registry_pb2)
    for name in file.DESCRIPTOR.services_by_name
}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_danube_server_answers_as_written(path, is_rewriting):
    written = path.read_text()
    played = await play(written)
    if is_rewriting:
        path.write_text(played)
    assert played == written or is_rewriting


async def play(text):
    """Return the transcript with the current answers of the server."""
    lines = []
    options = {}
    if "\n@without-auto-creation\n" in text:
        options["auto_create_topics"] = False
    async with (
        asyncio.timeout(TIMEOUT_S),
        memory_broker(**options) as broker,
        AsyncExitStack() as stack,
    ):
        transcript = Transcript(broker, stack)
        await transcript.open()
        for line in text.splitlines():
            if line.startswith("  "):
                continue
            lines.append(line)
            if line.partition("#")[0].strip():
                answers = await transcript.play(line)
                lines += [f"  {answer}" for answer in answers]
        await transcript.close()
    return "\n".join(lines) + "\n"


class Transcript:
    """Executes the lines of a transcript."""

    def __init__(self, memory, stack):
        self.memory = memory
        self.broker = memory.broker
        self.stack = stack
        self.callers = {}
        self.name = "anna"
        self.streams = {}
        self.numbers = {}

    async def open(self):
        self.server_stack = AsyncExitStack()
        self.server = await self.server_stack.enter_async_context(
            open_danube_server(
                self.broker,
                wall_clock_us=lambda: 1_700_000_000_000_000,
                advertised_url="http://broker:6650",
                authenticator=self.memory.server.authenticator,
            )
        )

    async def close(self):
        for stream in self.streams.values():
            stream.cancel()
        await self.server_stack.aclose()

    async def play(self, line):
        for name, number in self.numbers.items():
            line = line.replace(name, str(number))
        command, _, rest = line.partition(" ")
        if command.startswith("@"):
            act = getattr(self, "do_" + command[1:].replace("-", "_"))
            answers = await act(*rest.split())
        else:
            answers = await self.ask(command, rest)
        for name, number in self.numbers.items():
            answers = [re.sub(rf"\b{number}\b", name, answer) for answer in answers]
        return answers

    async def ask(self, command, rest):
        """Service.Method FIELD: VALUE …, as protobuf writes messages."""
        service, _, method = command.partition(".")
        package = PACKAGES[service]
        file = pb if package == "danube" else schema_registry_pb2
        shape = file.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        request = text_format.Parse(rest, GetMessageClass(shape.input_type)())
        call = await self.caller()
        path = f"{package}.{service}/{method}"
        await permit(self.memory, path, request)
        try:
            answer = await call(path, request)
        except grpc.aio.AioRpcError as error:
            return [f"{error.code().name} {error.details()}"]
        for kind in ("producer", "consumer"):
            if hasattr(answer, f"{kind}_id"):
                name = getattr(answer, f"{kind}_name")
                self.numbers[f"{kind}({name})"] = getattr(answer, f"{kind}_id")
        said = text_format.MessageToString(answer, as_utf8=True)
        said = re.sub(r"\bcreated_at: \d+", "created_at: NOW", said).splitlines()
        return said or ["(nothing)"]

    async def caller(self):
        """Return the current client's calls, over its own connection."""
        found = self.callers.get(self.name)
        if found is None:
            found = self.callers[self.name] = await self.stack.enter_async_context(
                connected(self.server.port)
            )
        return found

    # Commands that are not a single request.

    async def do_as(self, name):
        """@as NAME: continue as another client over another connection"""
        self.name = name
        return []

    async def do_stream(self, consumer_id, name="stream"):
        """@stream CONSUMER [STREAM]: ReceiveMessages"""
        call = await self.caller()
        stream = call(
            "danube.ConsumerService/ReceiveMessages",
            pb.ReceiveRequest(consumer_id=int(consumer_id)),
        )
        self.streams[name] = stream
        return await self.first_news(stream)

    async def first_news(self, stream):
        """Return the error of a stream that has ended, and nothing if it is open."""
        try:
            await stream.initial_metadata()
        except grpc.aio.AioRpcError as error:
            return [f"{error.code().name} {error.details()}"]
        if stream.done():
            return [f"{(await stream.code()).name} {await stream.details()}".strip()]
        return []

    async def do_read(self, name="stream"):
        """@read [STREAM]: everything that comes within a moment, then its end"""
        stream = self.streams[name]
        said = []
        while True:
            try:
                async with asyncio.timeout(NOTHING_AFTER_S):
                    # Cancelling a read would end the stream.
                    message = await asyncio.shield(self.reading(name))
            except TimeoutError:
                return said or ["(nothing)"]
            except grpc.aio.AioRpcError as error:
                return [*said, f"{error.code().name} {error.details()}"]
            if message is grpc.aio.EOF:
                return [*said, (await stream.code()).name]
            del stream.reading
            offset = message.msg_id.topic_offset
            said.append(f"{message.payload.decode()} at {offset}")

    def reading(self, name):
        """Return the pending read, which may be from the last time."""
        stream = self.streams[name]
        if not hasattr(stream, "reading"):
            stream.reading = asyncio.get_running_loop().create_task(stream.read())
        return stream.reading

    async def do_show(self, name="stream"):
        """@show [STREAM]: the next message with all fields"""
        async with asyncio.timeout(TIMEOUT_S):
            message = await self.reading(name)
        del self.streams[name].reading
        return text_format.MessageToString(message, as_utf8=True).splitlines()

    async def do_hang_up(self, name="stream"):
        """@hang-up [STREAM]: cancel the stream"""
        before = stream_count(self.server)
        self.streams.pop(name).cancel()
        # The server notices it later.
        while stream_count(self.server) == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return []

    async def do_limit(self, *limits):
        """@limit NAME=NUMBER …: the policy of the namespace default"""
        name = NamespaceName("default")
        given = {
            key: int(value) for key, _, value in (x.partition("=") for x in limits)
        }
        await self.broker.namespaces.configure(
            name, policy=replace(NamespacePolicy(), **given)
        )
        return []

    async def do_delete(self, topic):
        """@delete TOPIC: delete it by force"""
        await self.broker.topics.delete(TopicName.parse(topic), force=True)
        return []

    async def do_restart(self):
        """@restart: the server closes, and another one opens at another port"""
        await self.server_stack.aclose()
        self.callers.clear()
        await self.open()
        return []

    async def do_drain(self):
        """@drain: the broker accepts no more messages"""
        await self.broker.drain()
        return []

    async def do_without_auto_creation(self):
        """@without-auto-creation: producers never create topics"""
        return []
