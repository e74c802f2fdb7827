"""
Hostile schemas and payloads, and mutations of both, through the native client and gRPC.

Each round registers some schemas and mutations of them, binds topics to the registered
ones, publishes payloads, and decodes the received messages.  It also decodes mutated
payloads in this process: a decoder may raise only InvalidPayload.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa

import pydanube
from pydanube import Schema
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_spark.reader.decoding import decode_column
from support.drivers.danube_calls import DanubeCalls
from support.fakes.grpc_calls import connected
from support.fakes.hostile_schemas import Hostile, hostile_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 2
SCHEMAS_PER_ROUND = 4
MUTATIONS_PER_PAYLOAD = 20
PAYLOAD_BYTES_MAX = 100_000
RECEIVE_TIMEOUT_S = 60.0
VALUES = ("null", "true", "-1", "9223372036854775808", "1e308")
VALUES += ('""', '"#"', '"$ref"', "[]", "{}", "[{}]")
"""JSON texts, so that no two documents share a list or an object."""


async def attack(target: Target, rng: Random) -> None:
    """Register a few hostile schemas, publish with them and decode the messages."""
    for number in range(SCHEMAS_PER_ROUND):
        hostile = rng.choice(hostile_schemas())
        _decode_mutations(hostile, rng)
        name = f"hostile-{rng.getrandbits(48):x}-{number}"
        definition = hostile.definition
        if rng.random() < 0.7:
            definition = _mutated_definition(hostile, rng)
        async with pydanube.connect(target.broker.url) as client:
            schema = Schema(hostile.type, definition)
            if not await _register(client, name, schema):
                continue
            for _ in range(2):
                again = Schema(hostile.type, _mutated_definition(hostile, rng))
                await _register(client, name, again)
            await _publish(client, target, name, hostile, rng)
            await client.topics.delete(f"/default/{name}", force=True)
            await client.schemas.delete(name)


async def _register(client: Any, subject: str, schema: Schema[Any]) -> bool:
    """Register a version; return whether the registry accepted it."""
    try:
        await client.schemas.register(subject, schema)
    except (pydanube.InvalidSchema, pydanube.IncompatibleSchema):
        return False
    return True


async def _publish(
    client: Any, target: Target, name: str, hostile: Hostile, rng: Random
) -> None:
    topic = f"/default/{name}"
    await client.topics.create(topic)
    await client.topics.configure(
        topic,
        schema=pydanube.TopicSchema(
            subject=name,
            policy=rng.choice(
                [pydanube.SchemaPolicy.ENFORCE, pydanube.SchemaPolicy.WARN]
            ),
            validates_payload=True,
        ),
    )
    found = await client.schemas.latest(name)
    payloads = [*hostile.payloads, *_mutations(hostile, rng, 3)]
    for payload in payloads:
        try:
            async with client.producer(topic, subject=name) as typed:
                raw = TypedProducer(typed._producer, list, typed.schema)
                await raw.send_batch([payload, payload])
        except pydanube.InvalidPayload:
            pass
        except pydanube.InvalidSchema:
            # The schema is registered, but its library cannot encode with it.
            break
    async with connected(target.broker.grpc_port) as call:
        calls = DanubeCalls(call)
        await calls.create_producer("grpc", topic)
        for payload in payloads[-2:]:
            message = calls.message(
                payload,
                name="grpc",
                topic=topic,
                schema_id=found.schema_id,
                schema_version=found.version,
            )
            await _send(calls, message)
    # Receive and decode the accepted messages, up to an end marker.
    await client.topics.configure(
        topic,
        schema=pydanube.TopicSchema(subject=name, policy=pydanube.SchemaPolicy.NONE),
    )
    async with client.producer(topic) as producer:
        await producer.send(b"end")
    async with client.consumer(topic, subscription="s", start="earliest") as consumer:
        while True:
            message = await consumer.receive(timeout_s=RECEIVE_TIMEOUT_S)
            if message.payload == b"end" and not message.schema_id:
                break
            with suppress(pydanube.InvalidPayload, pydanube.InvalidSchema):
                _ = message.value
            await consumer.ack(message)


async def _send(calls: DanubeCalls, message: pb.StreamMessage) -> None:
    try:
        await calls.call("danube.ProducerService/SendMessage", message)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
            raise AssertionError(f"a message is refused with {error!r}") from error


def _decode_mutations(hostile: Hostile, rng: Random) -> None:
    """Decode mutated payloads in this process, alone, in a batch and as a column."""
    try:
        schema = parse_schema(hostile.type, hostile.definition)
        decode = schema.decoder()
        column = schema.column_decoder()
    except pydanube.InvalidSchema:
        return
    payloads = list(_mutations(hostile, rng, MUTATIONS_PER_PAYLOAD))
    for some in ([payload] for payload in payloads):
        with suppress(pydanube.InvalidPayload):
            decode(some)
    with suppress(pydanube.InvalidPayload):
        decode(payloads)
    array = pa.array(payloads, pa.binary())
    values, _ = decode_column(column, array, schema.arrow_type(), stops_at_first=False)
    assert len(values) == len(payloads)


def _mutations(hostile: Hostile, rng: Random, count: int) -> Iterator[bytes]:
    for payload in hostile.payloads:
        for _ in range(count):
            yield _mutated(payload, rng)


def _mutated(payload: bytes, rng: Random) -> bytes:
    data = bytearray(payload[:PAYLOAD_BYTES_MAX])
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randint(0, 16))
        match rng.randrange(5):
            case 0:
                data[at:end] = rng.randbytes(rng.randint(0, 16))
            case 1:
                data[at:at] = data[at:end] * rng.choice((1, 10, 300))
            case 2:
                del data[at:end]
            case 3:
                data[at:end] = bytes(len(data[at:end]))
            case _:
                data[at:end] = b"\xff" * rng.randint(1, 10)
    return bytes(data[:PAYLOAD_BYTES_MAX])


def _mutated_definition(hostile: Hostile, rng: Random) -> str:
    text = hostile.definition
    if hostile.type is SchemaType.PROTOBUF or rng.random() < 0.2:
        at = rng.randrange(len(text))
        end = at + rng.randint(0, 8)
        other = rng.randrange(len(text))
        return text[:at] + text[other : other + rng.randint(0, 40)] + text[end:]
    document = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        document = _mutated_part(document, rng)
    return json.dumps(document)


def _mutated_part(document: Any, rng: Random) -> Any:
    """Return *document* with a part changed, removed or moved."""
    parts: list[Any] = []
    pending = [document]
    while pending and len(parts) < 2000:
        part = pending.pop()
        if part and isinstance(part, dict | list):
            parts.append(part)
            pending += part.values() if isinstance(part, dict) else part
    if not parts:
        return json.loads(rng.choice(VALUES))
    part, other = rng.choice(parts), rng.choice(parts)
    key = rng.choice(list(part) if isinstance(part, dict) else range(len(part)))
    match rng.randrange(3):
        case 0:
            part[key] = json.loads(rng.choice(VALUES))
        case 1:
            # A copy, because JSON cannot contain itself.
            part[key] = json.loads(json.dumps(other))
        case _:
            del part[key]
    return document
