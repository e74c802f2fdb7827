"""
Malformed requests on the gRPC servers: frames, headers, messages and their fields.

A request is refused with a status that names the caller's mistake, or its connection is
closed.  INTERNAL and UNKNOWN mean a bug in the broker.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from pydanube.wire.pb import (
    danube_admin_pb2,
    danube_api_pb2,
    health_pb2,
    schema_registry_pb2,
)
from pydanube_broker.wire.grpc.http2_frames import FrameType
from support.fakes.http2_frames import END_HEADERS, data, frame, handshake, request

if TYPE_CHECKING:
    from random import Random

    from google.protobuf.message import Message

    from attack.target import Target

TEST_ROUNDS = 3
CALLS = 60
CONNECTIONS = 15
READ_TIMEOUT_S = 0.05
CALL_TIMEOUT_S = 10.0
STREAM_TIMEOUT_S = 0.3
BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)

TEXTS = (
    *("", "/", "//", "/default/", "/default/fuzz", "/default/fuzz-b", "fuzz", "a/b"),
    *("/fuzz/fuzz", "/default/fuzz-part-1", "/default/\N{SNOWMAN}", "\0", "x" * 300),
    *("json_schema", "avro", "protobuf", "bytes", "string", "number", "Backward"),
    *("none", "warn", "enforce", "{}", '{"type": "object"}', '"int"', "../..", "%00"),
)
NUMBERS = (0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
METHODS = [
    (port, method)
    for port, modules in (
        ("grpc_port", (danube_api_pb2, schema_registry_pb2, health_pb2)),
        ("admin_port", (danube_admin_pb2, schema_registry_pb2)),
    )
    for module in modules
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


async def attack(target: Target, rng: Random) -> None:
    """Send calls with odd fields, mutated messages, and mutated connections."""
    await _call(target, rng)
    for _ in range(CONNECTIONS):
        port = getattr(target.broker, rng.choice(("grpc_port", "admin_port")))
        await _connect(port, _connection_bytes(rng))


async def _call(target: Target, rng: Random) -> None:
    channels = {
        port: grpc.aio.insecure_channel(
            f"127.0.0.1:{getattr(target.broker, port)}",
            [("grpc.use_local_subchannel_pool", 1)],
        )
        for port in ("grpc_port", "admin_port")
    }
    try:
        for _ in range(CALLS):
            port, method = rng.choice(METHODS)
            message = _filled(GetMessageClass(method.input_type)(), rng)
            body = message.SerializeToString()
            if rng.random() < 0.3:
                body = _mutated(body, rng)
            await _one_call(channels[port], method, body)
    finally:
        for channel in channels.values():
            await channel.close()


async def _one_call(channel: grpc.aio.Channel, method: Any, body: bytes) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.server_streaming:
            stream = channel.unary_stream(path)(body, timeout=STREAM_TIMEOUT_S)
            async for _ in stream:
                pass
        else:
            await channel.unary_unary(path)(body, timeout=CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        _check_status(error, f"{path} {body!r}", may_be_late=method.server_streaming)


def _check_status(
    error: grpc.aio.AioRpcError, asked: str, *, may_be_late: bool
) -> None:
    code = error.code()
    text = f"{asked}: {code.name} {error.details()}"
    assert code not in BROKEN, text
    assert may_be_late or code is not grpc.StatusCode.DEADLINE_EXCEEDED, text


def _filled(message: Message, rng: Random, depth: int = 0) -> Message:
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.25:
            continue
        name = field.name
        is_map = field.message_type is not None and (
            field.message_type.GetOptions().map_entry
        )
        if is_map:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 2:
                continue
            found = getattr(message, name)
            inner = found.add() if field.is_repeated else found
            inner.SetInParent()
            _filled(inner, rng, depth + 1)
        elif field.is_repeated:
            getattr(message, name).extend([_value(field, rng)])
        else:
            setattr(message, name, _value(field, rng))
    return message


def _value(field: FieldDescriptor, rng: Random) -> Any:  # noqa: PLR0911
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = rng.choice(TEXTS)
            is_text = field.type == FieldDescriptor.TYPE_STRING
            return text if is_text else rng.choice([text.encode(), b"\xff\0"])
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice((0, 1, 2, 3, 9))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_INT32:
            return rng.choice((-(2**31), -1, 0, 1, 2**31 - 1))
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice((-(2**63), -1, 0, 1, 2**63 - 1))
        case FieldDescriptor.CPPTYPE_UINT32:
            return rng.choice([each for each in NUMBERS if each < 2**32])
        case _:
            return rng.choice(NUMBERS)


def _mutated(body: bytes, rng: Random) -> bytes:
    mutated = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(mutated) + 1)
        match rng.randrange(4):
            case 0:
                mutated[at : at + 1] = rng.randbytes(1)
            case 1:
                del mutated[at : at + rng.randint(1, 8)]
            case 2:
                mutated[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                mutated[at:at] = mutated[at : at + 20]
    return bytes(mutated)


def _connection_bytes(rng: Random) -> bytes:
    """Return the bytes of a valid connection with mutated frames, headers or bytes."""
    parts = [handshake()]
    for number in range(rng.randint(1, 5)):
        stream = 2 * number + 1
        _, method = rng.choice(METHODS)
        path = f"/{method.containing_service.full_name}/{method.name}".encode()
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path)]
        headers.append((b"content-type", b"application/grpc"))
        head = request(stream, headers=headers)
        if rng.random() < 0.3:
            # A block of the right length with any content.
            block = _mutated(head[9:], rng)
            head = frame(FrameType.HEADERS, END_HEADERS, stream, block)
        message = _filled(GetMessageClass(method.input_type)(), rng)
        body = message.SerializeToString()
        size = len(body) if rng.random() < 0.8 else rng.choice((0, 5, 2**32 - 1))
        body = struct.pack(">BI", rng.random() < 0.1, size) + body
        parts += [head, data(stream, body, ends=rng.random() < 0.8)]
    if rng.random() < 0.5:
        kind, flags = rng.randrange(12), rng.randrange(256)
        body = rng.randbytes(rng.randrange(40))
        parts.append(frame(kind, flags, rng.randrange(8), body))
        rng.shuffle(parts[1:])
    sent = b"".join(parts)
    return _mutated(sent, rng) if rng.random() < 0.5 else sent


async def _connect(port: int, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = bytearray()
    try:
        writer.write(sent)
        async with asyncio.timeout(READ_TIMEOUT_S):
            while part := await reader.read(65_536):
                received += part
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    # Trailers are literal: a name, the length of the value, and the value.
    for code in ("2", "13"):
        status = b"grpc-status" + bytes((len(code),)) + code.encode()
        assert status + b"\0" not in received, (sent, bytes(received))
