"""
The Iceberg REST catalog: the namespaces are namespaces, and the tables are topics.

It is read-only.  The paths and answers are those of the Iceberg REST catalog API, and
so are the errors.  Clients need the same permissions as for reading a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import (
    BrokerError,
    InvalidName,
    NamespaceNotFound,
    PermissionDenied,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
)
from pydanube.model.names import NamespaceName, TopicName
from pydanube.security.resources import Resource
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import (
    may_see,
    visible_namespaces,
)
from pydanube_broker.operations.topic_lists import check_namespace, visible_records
from pydanube_broker.servers.connections.errors import http_status_of
from pydanube_broker.servers.http.endpoints import Call, Endpoints, parse_count
from pydanube_broker.servers.http.responses import json_response

PATH = "/iceberg"
"""The path of the catalog; clients call its URL the URI of the catalog."""

PAGE_MAX = 5000
"""The maximum number of tables in one page, for clients that request pages."""

_TABLES = "/namespaces/{namespace}/tables"
_TABLE = f"{_TABLES}/{{topic}}"
_NAMESPACE = "/namespaces/{namespace}"

ICEBERG = Endpoints()


class IcebergError(msgspec.Struct, frozen=True):
    """The description of an error in the answers of the catalog."""

    message: str
    type: str
    code: int


_ERROR_TYPES: dict[type[BrokerError], str] = {
    InvalidName: "NoSuchTableException",
    NamespaceNotFound: "NoSuchNamespaceException",
    PermissionDenied: "ForbiddenException",
    TopicNotFound: "NoSuchTableException",
    Unauthenticated: "NotAuthorizedException",
    Unavailable: "ServiceUnavailableException",
}


@ICEBERG.add("GET", "/config", Kind.LIST_NAMESPACES)
async def catalog_config(call: Call) -> object:
    """Return the requests that the catalog answers, and defaults for clients."""
    # A client takes requests that are not in the list for unsupported.
    listed = [
        f"{each.method} /v1/{{prefix}}{each.path.replace('{topic}', '{table}')}"
        for each in ICEBERG
        if each.path.startswith("/namespaces")
    ]
    return {
        "defaults": file_io_defaults(
            call.broker.storage.public_objects.url(""),
            call.broker.storage.store_options,
        ),
        "overrides": {},
        "endpoints": listed,
    }


def file_io_defaults(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """
    Return what engines need to reach the object store at *url*, without credentials.

    *options* are the options that say where the store is.
    """
    if not url.startswith("s3://"):
        return {}
    defaults: dict[str, str] = {}
    if region := options.get("region"):
        defaults |= {"s3.region": region, "client.region": region}
    if endpoint := options.get("endpoint"):
        defaults |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    return defaults


@ICEBERG.add("GET", "/namespaces", Kind.LIST_NAMESPACES)
async def list_namespaces(call: Call) -> object:
    """Return the namespaces; there are none in a namespace."""
    if call.query.get("parent"):
        return {"namespaces": []}
    names = visible_namespaces(await call.broker.namespaces.names())
    return {"namespaces": [[name] for name in names]}


@ICEBERG.add("HEAD", _NAMESPACE, Kind.DESCRIBE_NAMESPACE, status=204)
async def namespace_exists(call: Call) -> None:
    """Return nothing if the namespace exists."""
    await _existing_namespace(call)


@ICEBERG.add("GET", _NAMESPACE, Kind.DESCRIBE_NAMESPACE)
async def load_namespace(call: Call) -> object:
    """Return a namespace; it has no properties."""
    return {"namespace": [await _existing_namespace(call)], "properties": {}}


@ICEBERG.add("GET", _TABLES, Kind.LIST_TOPICS)
async def list_tables(call: Call) -> object:
    """
    Return the tables of a namespace: one for each topic that stores its messages.

    A partitioned topic is one table.  Clients that send ``?pageToken=`` get pages.
    """
    namespace = await _existing_namespace(call)
    broker, token = call.broker, call.query.get("pageToken")
    if token is None:
        limit = None
    else:
        limit = parse_count("pageSize", call.query.get("pageSize", str(PAGE_MAX)), 1)
    names = await _table_names(broker, namespace)
    found = [name for name in names if name.topic > (token or "")]
    page = found if limit is None else found[: min(limit, PAGE_MAX)]
    answer: dict[str, object] = {
        "identifiers": [{"namespace": [namespace], "name": name.topic} for name in page]
    }
    if len(page) < len(found):
        answer["next-page-token"] = page[-1].topic
    return answer


@ICEBERG.add("HEAD", _TABLE, Kind.LIST_SEGMENTS, status=204)
async def table_exists(call: Call) -> None:
    """Return nothing if the table exists."""
    await call.broker.iceberg_tables.check(call.topic)


@ICEBERG.add("GET", _TABLE, Kind.LIST_SEGMENTS)
async def load_table(call: Call) -> object:
    """Return the metadata of a table, with the sealed messages of its topic."""
    table = await call.broker.iceberg_tables.load(call.topic)
    return {
        "metadata-location": table.metadata_url,
        "metadata": table.metadata,
        "config": {},
    }


async def _existing_namespace(call: Call) -> NamespaceName:
    try:
        namespace = call.namespace
    except InvalidName as error:
        # Such as several levels.
        raise NamespaceNotFound(str(error)) from error
    await check_namespace(call.broker, namespace)
    return namespace


async def _table_names(broker: Broker, namespace: NamespaceName) -> list[TopicName]:
    """Return the topics that are tables and that the caller may see, by name."""
    partitioned = await broker.catalog.partitioned(namespace)
    names = [
        name
        for name, record in partitioned.items()
        if record.policy.is_reliable and may_see(Resource.topic(name))
    ]
    work = LongWork()
    for name, record in await visible_records(broker, namespace):
        await work.did()
        split = name.split_partition()
        if record.policy.is_reliable and (split is None or split[0] not in partitioned):
            names.append(name)
    # It has two sorted parts, so this takes few comparisons.
    return sorted(names, key=attrgetter("topic"))


def iceberg_error(error: BrokerError) -> Response:
    """Return the response of the catalog to a request that failed with *error*."""
    status = 404 if isinstance(error, InvalidName) else http_status_of(error)
    kinds = (_ERROR_TYPES[cls] for cls in type(error).__mro__ if cls in _ERROR_TYPES)
    kind = next(kinds, "BadRequestException" if status < 500 else "RESTException")
    return _answer(IcebergError(str(error), kind, status))


def _answer(error: IcebergError) -> Response:
    return json_response({"error": error}, error.code)


async def _unsupported(request: Request) -> Response:
    """Refuse requests that change tables, and others that are not answered."""
    called = f"{request.method} {request.url.path}"
    if request.method in {"GET", "HEAD"}:
        message = f"this catalog has no {called}; its URI ends with {PATH}"
        return _answer(IcebergError(message, "NoSuchEndpointException", 404))
    message = (
        f"{called} is not supported: the catalog is read-only, because its tables are "
        "topics. Publish messages to add rows; credentials are a bearer token"
    )
    return _answer(IcebergError(message, "UnsupportedOperationException", 406))


def iceberg_routes(broker: Callable[[], Broker]) -> Mount:
    """Return the routes of the catalog for *broker*."""
    methods = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]
    other = Route("/{path:path}", _unsupported, methods=methods)
    served = [each.route(broker, iceberg_error) for each in ICEBERG]
    return Mount(PATH, routes=[Mount("/v1", routes=[*served, other]), other])
