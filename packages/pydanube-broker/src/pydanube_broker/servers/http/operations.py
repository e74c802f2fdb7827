"""
The JSON API, which is derived from the table of operations.

``POST /api/v1/create_topic`` carries out ``Kind.CREATE_TOPIC``.  The body and the
answer are the messages of the native protocol in the JSON of Protobuf, with the field
names of the ``.proto`` file.  An operation that only reads and has no nested fields is
also a GET, with its fields in the query.

A POST must have the content type JSON.  A web page of another origin cannot send that
content type without permission, so it cannot administer a broker on the machine of the
person who visits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import InvalidRequest, MessageTooLarge, NotOwner
from pydanube.security.permissions import Permission
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import authorized, is_checked
from pydanube_broker.operations.handlers import Call, Handler, handlers
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.errors import as_broker_error
from pydanube_broker.servers.http.endpoints import caller_of, principal_of
from pydanube_broker.servers.http.forwarding import HttpForwarding
from pydanube_broker.servers.http.responses import JSON, error_response

BODY_BYTES_MAX = 1024 * 1024
LOOP_BYTES_MAX = 64 * 1024
"""Longer messages are converted in a thread, because it takes tens of milliseconds."""
LISTED_AT_ONCE = 20
"""The number of elements of a long list that are converted together."""
CONVERTING_STEPS = 3
"""The steps of ``LongWork`` for one of them."""
ERROR_LENGTH_MAX = 500
"""The maximum length of an error about a field, which quotes its value."""

_READING = frozenset({Permission.DESCRIBE, Permission.SCHEMA_READ})


def is_readable(kind: Kind) -> bool:
    """Return whether the operation is also a GET."""
    assert kind.body is not None
    fields = kind.body.DESCRIPTOR.fields
    return kind.permission in _READING and not any(each.message_type for each in fields)


def path_of(kind: Kind) -> str:
    """Return the path of an operation below ``/api/v1``."""
    return f"/{kind.name.lower()}"


def operation_route(
    broker: Callable[[], Broker],
    authenticator: Authenticator,
    forwarding: HttpForwarding | None = None,
) -> Route:
    """
    Return the route of all operations that need no connection.

    It is one for all of them, because Starlette compiles a pattern for each route.
    With *forwarding*, other processes of the broker answer what is about their topics.
    """
    endpoints = {
        path_of(kind): (
            _methods_of(kind),
            _endpoint(kind, handler, broker, authenticator, forwarding),
        )
        for kind, handler in handlers().items()
    }

    async def respond(request: Request) -> Response:
        found = endpoints.get(f"/{request.path_params['operation']}")
        if found is None:
            raise HTTPException(404)
        methods, endpoint = found
        if request.method not in methods:
            raise HTTPException(405, headers={"Allow": ", ".join(methods)})
        return await endpoint(request)

    # With no methods, Starlette refuses none: those of each operation are its own.
    return Route("/{operation}", respond, methods=())


def _methods_of(kind: Kind) -> tuple[str, ...]:
    return ("GET", "HEAD", "POST") if is_readable(kind) else ("POST",)


def _endpoint(
    kind: Kind,
    handler: Handler,
    broker: Callable[[], Broker],
    authenticator: Authenticator,
    forwarding: HttpForwarding | None,
) -> Callable[[Request], Awaitable[Response]]:
    async def find_answer(request: Request) -> Response:
        message = await _message_of(request, kind)
        try:
            call = Call(broker(), principal_of(request), authenticator)
            answer = await carry_out(request, call, kind, handler, message) or pb.Ok()
            return Response(await encode_json(answer), media_type=JSON)
        except NotOwner:
            topic: str = getattr(message, "topic", "")
            if forwarding is None or not topic:
                raise
            fields = MessageToDict(message, preserving_proto_field_name=True)
            forwarded = await forwarding.answer(
                request, broker(), topic, msgspec.json.encode(fields)
            )
            if forwarded is None:
                raise
            return forwarded

    async def respond(request: Request) -> Response:
        try:
            return await find_answer(request)
        except ClientDisconnect:
            return error_response(InvalidRequest("the request ended before its body"))
        except Exception as error:  # noqa: BLE001  # The client gets it.
            doing = f"{request.method} {request.url.path}"
            return error_response(as_broker_error(error, doing))

    return respond


async def carry_out(
    request: Request, call: Call, kind: Kind, handler: Handler, message: Message
) -> Any:
    """
    Return the answer of *handler* to *message*, if the client of *request* may ask it.

    Raises:
        PermissionDenied: It may not carry out the operation *kind* on what it names.
    """
    if not is_checked(call.broker):
        return await handler(call, message)
    async with authorized(caller_of(request, call.broker), kind, message):
        return await handler(call, message)


async def _message_of(request: Request, kind: Kind) -> Message:
    """
    Return the message of *request*.

    Raises:
        InvalidRequest: The body is not JSON, a field is unknown, or a value has the
            wrong type.
        MessageTooLarge: The body has more than ``BODY_BYTES_MAX`` bytes.
    """
    assert kind.body is not None
    if request.method != "POST":
        items = request.query_params.multi_items()
        return _parsed(partial(_of_query, items, kind), kind)
    body = await body_of(request)
    read = partial(msgspec.json.decode, body)
    message: Message = await _convert(len(body), _parsed, read, kind)
    return message


async def body_of(request: Request, types: Collection[str] = (JSON,)) -> bytes:
    """
    Return the body of *request*.

    Raises:
        InvalidRequest: Its content type is none of *types*.
        MessageTooLarge: The body has more than ``BODY_BYTES_MAX`` bytes.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() not in types:
        raise InvalidRequest(f"the request must carry JSON: 'content-type: {JSON}'")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise MessageTooLarge(f"the request has more than {BODY_BYTES_MAX} bytes")
    return bytes(body)


async def _convert(byte_count: int, convert: Callable[..., Any], *given: Any) -> Any:
    """Call *convert*, in a thread if this takes long."""
    if byte_count > LOOP_BYTES_MAX:
        return await asyncio.to_thread(convert, *given)
    return convert(*given)


def _parsed(read: Callable[[], Any], kind: Kind) -> Message:
    assert kind.body is not None
    try:
        value = read()
        if not isinstance(value, dict):
            raise InvalidRequest("the request must be a JSON object, such as {}")
        _refuse_long_numbers(value, "request")
        _name_changes(value, kind)
        return ParseDict(value, kind.body())
    except (
        msgspec.DecodeError,
        ParseError,
        RecursionError,
        # Text that is not Unicode, and numbers that no field can have.
        ValueError,
        TypeError,
        OverflowError,
    ) as error:
        text = " ".join(str(error).replace("$", "request").split())
        raise InvalidRequest(text[:ERROR_LENGTH_MAX]) from None


def _name_changes(value: dict[str, Any], kind: Kind) -> None:
    """Let *value* change the settings that it has, if it does not name others."""
    assert kind.body is not None
    settings = value.get("settings")
    is_change = "changes" in kind.body.DESCRIPTOR.fields_by_name
    if is_change and "changes" not in value and isinstance(settings, dict):
        value["changes"] = list(settings)


def _of_query(items: Iterable[tuple[str, str]], kind: Kind) -> dict[str, Any]:
    """Return the fields in a query as their JSON."""
    assert kind.body is not None
    known = kind.body.DESCRIPTOR.fields_by_name
    found: dict[str, Any] = {}
    for name, text in items:
        field = known.get(name)
        if field is not None and field.is_repeated:
            found.setdefault(name, []).append(text)
        elif field is not None and field.type == FieldDescriptor.TYPE_BOOL:
            found[name] = {"true": True, "false": False}.get(text, text)
        else:
            found[name] = text
    return found


def _refuse_long_numbers(value: object, path: str) -> None:
    """Raise unless all integers in *value* have 64 bits, as in all other protocols."""
    if isinstance(value, int) and value.bit_length() > 64:
        # Not the number, which may have a million digits.
        raise InvalidRequest(f"{path}: an integer has 64 bits, and this one has more")
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_long_numbers(inner, f"{path}.{name}")
    if isinstance(value, list):
        for at, inner in enumerate(value):
            _refuse_long_numbers(inner, f"{path}[{at}]")


async def encode_json(message: Message) -> bytes:
    """
    Return the JSON of *message*, and let other tasks run.

    Long lists are converted in parts.  A thread would hold the event loop longer,
    because it releases the interpreter's lock only every 5 ms.
    """
    lists = {
        field.name: values
        for field, values in message.ListFields()
        if _is_list(field) and len(values) > LISTED_AT_ONCE
    }
    if not lists:
        whole: bytes = await _convert(message.ByteSize(), _encode, message)
        return whole
    encoded = {name: await _encode_list(message, name) for name in lists}
    others = type(message)(
        **{
            field.name: value
            for field, value in message.ListFields()
            if field.name not in lists
        }
    )
    fields = await _convert(others.ByteSize(), _to_json, others)
    parts = [
        msgspec.json.encode(name) + b":" + (encoded.get(name) or msgspec.json.encode(v))
        for name, v in fields.items()
    ]
    return b"{" + b",".join(parts) + b"}"


async def _encode_list(message: Message, name: str) -> bytes:
    """Return the JSON of the field *name*, which is a list."""
    values, parts, work = getattr(message, name), list[bytes](), LongWork()
    for begin in range(0, len(values), LISTED_AT_ONCE):
        part = type(message)()
        getattr(part, name).extend(values[begin : begin + LISTED_AT_ONCE])
        parts.append(await _convert(part.ByteSize(), _encode_part, part, name))
        await work.did(LISTED_AT_ONCE * CONVERTING_STEPS)
    return b"[" + b",".join(parts) + b"]"


def _encode_part(part: Message, name: str) -> bytes:
    return msgspec.json.encode(_to_json(part)[name])[1:-1]


def _encode(message: Message) -> bytes:
    return msgspec.json.encode(_to_json(message))


def _is_list(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated) and not _is_map(field)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _to_json(message: Message) -> dict[str, Any]:
    return MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
