"""
How the JSON API takes and answers requests.

Whatever changes something comes as JSON and says so in its content type.  A page of
another origin cannot send that, or DELETE, without being allowed to, so nobody's
browser administers a broker that happens to listen on the same machine.
"""

from __future__ import annotations

import logging
from dataclasses import is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    MessageTooLarge,
    NotFound,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.positions import to_position
from pydanube.servers.errors import http_status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from pydanube.broker.broker import Broker
    from pydanube.model.policy import Position

T = TypeVar("T")

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 1024 * 1024

_JSON = "application/json"


def answering(
    call: Callable[[Request], Awaitable[object]],
) -> Callable[[Request], Awaitable[Response]]:
    """*call* as an endpoint: its value becomes JSON, and so does what it raises."""

    async def endpoint(request: Request) -> Response:
        try:
            answer = await call(request)
        except BrokerError as error:
            return problem(error)
        except ClientDisconnect:
            return problem(InvalidRequest("the request ended before its body"))
        except Exception as error:
            # A bug fails this request, not the server.
            log.exception("%s %s failed", request.method, request.url.path)
            return problem(BrokerError(f"the broker failed: {error!r}"))
        return answer if isinstance(answer, Response) else document(answer)

    return endpoint


def document(value: object, status: int = 200) -> Response:
    """*value* as JSON: fields by name, and what we have names for by its value."""
    return Response(msgspec.json.encode(value), status, media_type=_JSON)


def created(value: object) -> Response:
    """What is there now, and was not before."""
    return document(value, 201)


def done() -> Response:
    """There is nothing to say."""
    return Response(status_code=204)


def problem(error: BrokerError) -> Response:
    """What went wrong, with the code that stands for it in every other protocol."""
    return Response(json_of(error), http_status_of(error), media_type=_JSON)


def json_of(error: BrokerError) -> bytes:
    """Return the body that tells a client of *error*."""
    return msgspec.json.encode({"code": error.code, "message": str(error)})


async def on_http_error(request: Request, error: Exception) -> Response:
    """A path that leads nowhere, or a method that the place has not."""
    status = getattr(error, "status_code", 500)
    kind = NotFound if status == 404 else InvalidRequest
    message = f"{getattr(error, 'detail', error)}: {request.method} {request.url.path}"
    headers = getattr(error, "headers", None)
    body = msgspec.json.encode({"code": kind.code, "message": message})
    return Response(body, status, headers, media_type=_JSON)


async def body_of(request: Request, kind: type[T]) -> T:
    """
    The JSON of *request* as a *kind*, a dataclass.

    Raises:
        InvalidRequest: It is no JSON, lacks a field, has one that is not known, or
            one with a value that is not of its type.
        MessageTooLarge: It is longer than anything that could be meant.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != _JSON:
        raise InvalidRequest(f"the request must carry JSON: 'content-type: {_JSON}'")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise MessageTooLarge(f"the request has more than {BODY_BYTES_MAX} bytes")
    try:
        value = msgspec.json.decode(bytes(body))
        _refuse_unknown(value, kind, "request")
        return msgspec.convert(value, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = str(error).replace("`", "").replace("$", "request")
        raise InvalidRequest(said) from None


def topic_of(request: Request) -> TopicName:
    """The topic that the path names."""
    path = request.path_params
    return TopicName.parse(f"/{path['namespace']}/{path['topic']}")


async def one_topic(broker: Broker, name: TopicName) -> TopicName:
    """
    The topic *name*, which must not stand for several partitions.

    Raises:
        TopicNotFound: There is none, or it has partitions.
    """
    topics = await all_topics(broker, name)
    if topics != [name]:
        raise TopicNotFound(
            f"{name} has {len(topics)} partitions: ask about one, such as {topics[0]}"
        )
    return name


async def all_topics(broker: Broker, name: TopicName) -> list[TopicName]:
    """
    The topic *name* itself, or its partitions.

    Raises:
        TopicNotFound: There is neither.
    """
    topics = await broker.topics.partitions_of(name)
    if not topics:
        raise TopicNotFound(f"Unable to find the topic: {name}")
    return topics


def position(value: int | str) -> Position:
    """
    A place in a topic: an offset, ``earliest``, ``latest``, or an RFC 3339 time.

    Raises:
        InvalidRequest: It is none of these.
    """
    if isinstance(value, str) and value[:1].isdigit():
        try:
            return to_position(datetime.fromisoformat(value))
        except ValueError:
            raise InvalidRequest(
                f"{value!r} is not a time such as 2025-03-01T09:30:00Z"
            ) from None
    return to_position(value)


def _refuse_unknown(value: object, kind: Any, path: str) -> None:
    for each in get_args(kind) or (kind,):
        if not isinstance(value, dict) or not is_dataclass(each):
            continue
        known = get_type_hints(each)
        if unknown := value.keys() - known.keys():
            raise InvalidRequest(
                f"{path}: unknown field {min(unknown)!r}; there are {', '.join(known)}"
            )
        for name, inner in value.items():
            _refuse_unknown(inner, known[name], f"{path}.{name}")
