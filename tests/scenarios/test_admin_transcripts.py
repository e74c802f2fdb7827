"""
Golden transcripts of the admin server: ``admin/*.txt``.

A line at the margin is a request, the indented lines under it are the answer: the
message, in which what is 0 is left out, or the status and its text.  ``#`` begins a
comment.  What is not asked of the admin server, such as consuming, begins with ``@``.
To accept changed answers: ``pytest tests/scenarios --rewrite``, and read the diff.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format

from pydanube.model.errors import BrokerError
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2
from pydanube_broker.servers.grpc.admin import admin_services
from pydanube_broker.servers.grpc.danube_server import schema_registry
from pydanube_broker.servers.grpc.pure.id_registry import stable_id
from support.fakes.grpc_calls import Caller
from support.worlds.current import memory_broker
from support.worlds.grpc_calls import brokers_of, calling

pytestmark = pytest.mark.e2e

SCENARIOS = sorted((Path(__file__).parent / "admin").glob("*.txt"))
TIMEOUT_S = 120

ADDRESSES = {
    "broker_url": "http://127.0.0.1:6650",
    "admin_url": "http://127.0.0.1:50051",
    "metrics_address": "127.0.0.1:8080",
}


def services_of(broker):
    return [*admin_services(broker, **ADDRESSES), schema_registry(broker)]


def id_of(broker):
    return str(stable_id(("broker", broker.broker_id)))


SERVICES = {
    **pb.DESCRIPTOR.services_by_name,
    **schema_registry_pb2.DESCRIPTOR.services_by_name,
}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_admin_server_answers_as_written(path, is_rewriting):
    written = path.read_text()
    played = await play(written)
    if is_rewriting:
        path.write_text(played)
    assert played == written or is_rewriting


async def play(text):
    """Return the transcript with the current answers of the server."""
    lines = []
    async with (
        asyncio.timeout(TIMEOUT_S),
        memory_broker() as broker,
        broker.connect() as client,
        AsyncExitStack() as stack,
    ):
        transcript = Transcript(broker, client, stack)
        for line in text.splitlines():
            if line.startswith("  "):
                continue
            lines.append(line)
            if line.partition("#")[0].strip():
                lines += [f"  {each}" for each in await transcript.play(line)]
    return "\n".join(lines) + "\n"


class Transcript:
    """Executes the lines of a transcript."""

    def __init__(self, broker, client, stack):
        self.broker = broker
        self.client = client
        self.stack = stack
        self.consumers = {}
        self.leaving = {}
        self.received = {}

    async def play(self, line):
        command, _, rest = line.partition(" ")
        if not command.startswith("@"):
            return await self.ask(command, rest)
        try:
            return await getattr(self, f"do_{command[1:]}")(*rest.split())
        except BrokerError as error:
            return [f"error {error.code}: {error}"]

    async def ask(self, command, rest):
        """Service.Method FIELD: VALUE …, as protobuf writes messages."""
        service, _, name = command.partition(".")
        method = f"{SERVICES[service].full_name}/{name}"
        while True:
            code, answers = await self.call(method, rest)
            # Clients repeat what nobody serves at the moment.
            if code is not grpc.StatusCode.UNAVAILABLE:
                return answers or ["(nothing)"]

    async def call(self, method, fields):
        """Return the status of the answer of one of the brokers, and its lines."""
        empty = Caller.request_type(method)()
        named = text_format.Parse(fields.replace("BROKER", ""), empty)
        async with calling(self.broker, method, named, services_of) as (broker, call):
            text = fields.replace("BROKER", id_of(broker))
            request = text_format.Parse(text, Caller.request_type(method)())
            try:
                answer = await call(method, request)
            except grpc.aio.AioRpcError as error:
                text = f"{error.code().name} {error.details()}"
                return error.code(), [self.without_ids(text)]
            text = text_format.MessageToString(answer, as_utf8=True)
            return None, self.without_ids(text).splitlines()

    def without_ids(self, text):
        """Return *text* with one name for all brokers."""
        for broker in brokers_of(self.broker):
            text = text.replace(id_of(broker), "BROKER")
        return text

    # Other commands.

    async def do_consume(self, topic, subscription, kind="exclusive", name="anna"):
        """@consume TOPIC SUBSCRIPTION [TYPE [CONSUMER]]"""
        own = await self.stack.enter_async_context(AsyncExitStack())
        self.consumers[name] = await own.enter_async_context(
            self.client.consumer(
                topic, subscription=subscription, type=kind, name=name, start="earliest"
            )
        )
        self.leaving[name] = own.aclose
        return []

    async def do_leave(self, name="anna"):
        """@leave [CONSUMER]"""
        await self.leaving.pop(name)()
        return []

    async def do_publish(self, topic, *payloads):
        """@publish TOPIC PAYLOAD…"""
        async with self.client.producer(topic) as producer:
            await producer.send_batch([payload.encode() for payload in payloads])
        return []

    async def do_receive(self, name="anna"):
        """@receive [CONSUMER]: wait for the next messages"""
        batch = await self.consumers[name].receive_batch(timeout_s=60)
        self.received[name] = batch
        return [payload.decode() for payload in batch.payloads] or ["(nothing)"]

    async def do_wait(self, name="anna"):
        """@wait [CONSUMER]: the messages that arrive within a moment"""
        batch = await self.consumers[name].receive_batch(timeout_s=0.1)
        return [payload.decode() for payload in batch.payloads] or ["(nothing)"]

    async def do_nack(self, name="anna"):
        """@nack [CONSUMER]: the messages that it received last"""
        await self.consumers[name].nack(self.received[name])
        return []

    async def do_ack(self, name="anna"):
        """@ack [CONSUMER]: the messages that it received last"""
        await self.consumers[name].ack(self.received[name])
        return []
