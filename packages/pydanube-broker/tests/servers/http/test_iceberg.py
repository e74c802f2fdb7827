"""The Iceberg REST catalog: lists, tables, permissions and errors."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest

from pydanube.model.errors import (
    InvalidName,
    InvalidRequest,
    NamespaceNotFound,
    ObjectsUnavailable,
    PermissionDenied,
    TopicNotFound,
    Unauthenticated,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.servers.http.app import make_app
from pydanube_broker.servers.http.iceberg import file_io_defaults, iceberg_error
from support.fakes.http_api import State
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ALICE = Principal("alice", "token")
TABLE = "/namespaces/shop/tables/orders"


@pytest.fixture
async def catalog(api):
    """Ask the catalog of a broker in memory, in which everybody may do everything."""
    await api.client.namespaces.create("shop")
    await api.client.topics.create("/shop/orders")
    await api.client.topics.create("/shop/clicks", partitions=2)

    async def ask(path, method="GET", status=200):
        answer = await api.http.request(method, f"/iceberg/v1{path}")
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    return ask


def tables(answer):
    return [each["name"] for each in answer["identifiers"]]


async def test_the_configuration_lists_the_requests_that_are_answered(catalog):
    config = await catalog("/config")
    assert config["overrides"] == {}
    listed = config["endpoints"]
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in listed
    assert {each.partition(" ")[0] for each in listed} == {"GET", "HEAD"}


async def test_namespaces_have_one_level(catalog):
    assert ["shop"] in (await catalog("/namespaces"))["namespaces"]
    assert (await catalog("/namespaces?parent=shop"))["namespaces"] == []
    found = await catalog("/namespaces/shop")
    assert found == {"namespace": ["shop"], "properties": {}}
    await catalog("/namespaces/shop", "HEAD", 204)
    for path in ("/namespaces/none", "/namespaces/a%1Fb"):
        error = (await catalog(path, status=404))["error"]
        assert error["type"] == "NoSuchNamespaceException"


async def test_a_partitioned_topic_is_listed_once(catalog):
    assert tables(await catalog("/namespaces/shop/tables")) == ["clicks", "orders"]


async def test_clients_that_ask_for_pages_get_pages(catalog):
    path = "/namespaces/shop/tables?pageSize=1&pageToken="
    first = await catalog(path)
    assert tables(first) == ["clicks"]
    second = await catalog(path + first["next-page-token"])
    assert tables(second) == ["orders"]
    assert "next-page-token" not in second


async def test_a_table_has_the_schema_of_a_segment(catalog):
    found = await catalog(TABLE)
    assert found["metadata-location"].endswith(".metadata.json")
    [schema] = found["metadata"]["schemas"]
    assert schema["fields"][0]["name"] == "offset"
    await catalog(TABLE, "HEAD", 204)
    clicks = await catalog("/namespaces/shop/tables/clicks")
    assert clicks["metadata"]["schemas"][0]["fields"][-1]["name"] == "partition"


@pytest.mark.parametrize("table", ["nothing", "b%20d"])
async def test_a_table_that_does_not_exist_is_not_found(catalog, table):
    error = (await catalog(f"/namespaces/shop/tables/{table}", status=404))["error"]
    assert error["type"] == "NoSuchTableException"
    assert error["code"] == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/namespaces"),
        ("DELETE", "/namespaces/shop"),
        ("POST", "/namespaces/shop/tables"),
        ("POST", TABLE),
        ("DELETE", TABLE),
        ("POST", "/tables/rename"),
        ("POST", "/transactions/commit"),
    ],
)
async def test_requests_that_change_something_are_refused(catalog, method, path):
    error = (await catalog(path, method, 406))["error"]
    assert error["type"] == "UnsupportedOperationException"


async def test_an_unknown_path_is_named(catalog):
    error = (await catalog("/namespaces/shop/views", status=404))["error"]
    assert "/namespaces/shop/views" in error["message"]


@pytest.fixture
async def guarded():
    async with guarded_broker() as memory, client_of(memory, ROOT) as client:
        await client.namespaces.create("shop")
        await client.topics.create("/shop/orders")
        identity = ChosenIdentity()
        app = make_app(State(memory.broker), authenticator=identity)
        transport = httpx.ASGITransport(app)
        base = "http://broker/iceberg/v1"
        async with httpx.AsyncClient(transport=transport, base_url=base) as http:
            yield SimpleNamespace(
                http=http, identity=identity, access=memory.broker.access
            )


async def test_a_table_needs_the_permission_to_read_the_topic(guarded):
    for method in ("GET", "HEAD"):
        guarded.identity.principal = ANONYMOUS
        assert (await guarded.http.request(method, TABLE)).status_code == 401
        guarded.identity.principal = ALICE
        assert (await guarded.http.request(method, TABLE)).status_code == 403
    error = (await guarded.http.get(TABLE)).json()["error"]
    assert error["type"] == "ForbiddenException"
    role = Role("reader", frozenset({Permission.CONSUME}))
    await guarded.access.set_role(ROOT, role)
    binding = Binding("user:alice", ("reader",), ("/shop/orders",), "reads")
    await guarded.access.add_binding(ROOT, binding)
    assert (await guarded.http.get(TABLE)).status_code == 200
    assert (await guarded.http.head(TABLE)).status_code == 204


class InvalidToken(ChosenIdentity):
    """Refuses all credentials."""

    def authenticate(self, *_, **_options):
        raise Unauthenticated("the token has expired")


async def test_invalid_credentials_are_refused_with_the_error_of_the_api(broker):
    app = make_app(State(broker.broker), authenticator=InvalidToken())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        answer = await http.get("/iceberg/v1/config")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"] == {
            "message": "the token has expired",
            "type": "NotAuthorizedException",
            "code": 401,
        }
        assert (await http.get("/api/v1/list_topics")).json()[
            "code"
        ] == "unauthenticated"


async def test_lists_have_only_what_the_client_may_see(guarded):
    binding = Binding("user:alice", ("viewer",), ("/shop",), "views")
    await guarded.access.add_binding(ROOT, binding)
    guarded.identity.principal = ALICE
    namespaces = (await guarded.http.get("/namespaces")).json()["namespaces"]
    assert namespaces == [["shop"]]
    assert tables((await guarded.http.get("/namespaces/shop/tables")).json()) == []
    guarded.identity.principal = ROOT
    answer = (await guarded.http.get("/namespaces/shop/tables")).json()
    assert tables(answer) == ["orders"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (TopicNotFound(""), 404, "NoSuchTableException"),
        (InvalidName(""), 404, "NoSuchTableException"),
        (NamespaceNotFound(""), 404, "NoSuchNamespaceException"),
        (PermissionDenied(""), 403, "ForbiddenException"),
        (ObjectsUnavailable(""), 503, "ServiceUnavailableException"),
        (InvalidRequest(""), 400, "BadRequestException"),
    ],
)
def test_errors_have_the_types_of_the_api(error, status, kind):
    answer = iceberg_error(error)
    assert answer.status_code == status
    assert kind.encode() in answer.body


def test_clients_get_the_endpoint_of_the_store_but_no_credentials():
    options = {"endpoint": "http://s3:9000", "region": "eu-west-1"}
    assert file_io_defaults("s3://bucket/", options) == {
        "client.region": "eu-west-1",
        "s3.endpoint": "http://s3:9000",
        "s3.path-style-access": "true",
        "s3.region": "eu-west-1",
    }
    assert file_io_defaults("s3://bucket/", {}) == {}
    assert file_io_defaults("file:///data/", options) == {}
