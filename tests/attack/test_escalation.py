"""Clients with few permissions that try to get more, on all listeners of a broker."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from itertools import product

import grpc
import pytest

import pydanube
from pydanube.wire.pb import danube_admin_pb2 as pb
from support.drivers.running import published
from support.fakes.grpc_calls import connected
from support.fakes.listeners import LISTENERS, OK, REDIRECTED, Asker, port_of, urls_of
from support.fakes.secured import bootstrap_key, secured

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_credentials"),
]

OWN, SECRET = "/shop/orders", "/bank/Accounts"


@asynccontextmanager
async def connected_as(url, key):
    async with pydanube.connect(url, api_key=key) as client:
        yield client


@pytest.fixture
async def broker(tmp_path):
    async with secured(tmp_path) as broker:
        yield broker


@pytest.fixture
async def admin(broker, tmp_path):
    async with connected_as(broker.stream_url, bootstrap_key(tmp_path)) as client:
        for name in ("shop", "bank"):
            await client.namespaces.create(name)
        await published(client, b"a secret", topic=SECRET)
        await published(client, b"an order", topic=OWN)
        yield client


@pytest.fixture
async def mallory(broker, admin):
    """The key of a client that may let others use the topics of one namespace."""
    key = (await admin.security.create_api_key("mallory", groups=["team"])).key
    await admin.security.set_role("delegate", ["grant", "produce", "consume"])
    await admin.security.set_role("traders", ["produce"])
    await admin.security.add_binding(
        "user:mallory", ["delegate"], ["/shop/*"], binding_id="own"
    )
    await admin.security.add_binding(
        "group:team", ["traders"], ["/shop/orders"], binding_id="team"
    )
    await admin.security.add_binding("user:eve", ["admin"], ["*"], binding_id="eve")
    return key


async def policy_of(admin):
    return await admin.security.roles(), await admin.security.bindings()


ESCALATIONS = {
    "own binding to more topics": lambda client: client.security.add_binding(
        "user:mallory", ["delegate"], ["/shop/*", "/bank/*"], binding_id="own"
    ),
    "own binding to a stronger role": lambda client: client.security.add_binding(
        "user:mallory", ["admin"], ["/shop/*"], binding_id="own"
    ),
    "another binding for oneself": lambda client: client.security.add_binding(
        "user:mallory", ["admin"], ["*"], binding_id="more"
    ),
    "binding of the own group": lambda client: client.security.add_binding(
        "group:team", ["admin"], ["/shop/*"], binding_id="team"
    ),
    "binding of everybody": lambda client: client.security.add_binding(
        "anonymous", ["consumer"], ["*"], binding_id="anonymous"
    ),
    "pattern with the system namespace": lambda client: client.security.add_binding(
        "user:mallory", ["consumer"], ["/system/audit"], binding_id="audit"
    ),
    "pattern of all namespaces": lambda client: client.security.add_binding(
        "user:mallory", ["consumer"], ["/*/*"], binding_id="all"
    ),
    "permissions of the own role": lambda client: client.security.set_role(
        "delegate", ["grant", "produce", "consume", "manage"]
    ),
    "permissions of the role of the own group": lambda client: client.security.set_role(
        "traders", ["produce", "cluster_admin"]
    ),
    "built-in role": lambda client: client.security.set_role(
        "consumer", ["cluster_admin"]
    ),
    "binding of somebody with more": lambda client: client.security.remove_binding(
        "eve"
    ),
    "binding of somebody with more, replaced": lambda client: (
        client.security.add_binding(
            "user:eve", ["delegate"], ["/shop/*"], binding_id="eve"
        )
    ),
    "role of others": lambda client: client.security.delete_role("delegate"),
    "API key of another principal": lambda client: client.security.create_api_key(
        "stolen", principal="eve"
    ),
    "API key with another group": lambda client: client.security.create_api_key(
        "stolen", principal="mallory", groups=["admins"]
    ),
    "rotation of another key": lambda client: client.security.rotate_api_key("mallory"),
}


@pytest.mark.parametrize("name", ESCALATIONS)
async def test_client_cannot_extend_its_permissions(broker, admin, mallory, name):
    before = await policy_of(admin)
    async with connected_as(broker.stream_url, mallory) as client:
        # Bindings and roles of others are not there for Mallory.
        with pytest.raises(
            (
                pydanube.PermissionDenied,
                pydanube.InvalidRequest,
                pydanube.NotFound,
            )
        ):
            await ESCALATIONS[name](client)
        assert await policy_of(admin) == before
        # What it holds, it may grant.
        await client.security.add_binding(
            "user:carol", ["delegate"], ["/shop/orders"], binding_id="ok"
        )


def binding(name, role, scope="cluster", resource=""):
    return pb.CreateBindingRequest(
        binding=pb.BindingDefinition(
            id=name,
            principal_type="user",
            principal_name="mallory",
            role_names=[role],
            scope=scope,
            resource_name=resource,
        )
    )


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateBinding", binding("more", "admin")),
        ("CreateBinding", binding("own", "admin")),
        ("CreateBinding", binding("bank", "consumer", "namespace", "bank")),
        (
            "CreateRole",
            pb.CreateRoleRequest(
                role=pb.RoleDefinition(name="delegate", permissions=["ManageCluster"])
            ),
        ),
        ("DeleteRole", pb.DeleteRoleRequest(name="traders")),
        ("DeleteBinding", pb.DeleteBindingRequest(binding_id="eve", scope="cluster")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_client_cannot_extend_its_permissions_over_grpc(
    broker, admin, mallory, method, request_
):
    before = await policy_of(admin)
    async with connected(port_of(broker.admin_url)) as call:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(
                f"danube_admin.SecurityAdmin/{method}",
                request_,
                metadata=(("x-api-key", mallory),),
            )
    assert refused.value.code().name in {
        *("PERMISSION_DENIED", "ALREADY_EXISTS", "INVALID_ARGUMENT", "NOT_FOUND"),
    }
    assert await policy_of(admin) == before


TRICKS = {
    "parent directory": "/shop/../bank/Accounts",
    "parent directory as a topic": "/shop/..",
    "encoded parent directory": "/shop/%2e%2e%2fbank%2fAccounts",
    "encoded twice": "/shop/%252e%252e/bank/Accounts",
    "encoded slash": "/shop%2f..%2fbank/Accounts",
    "backslash": "/shop\\..\\bank/Accounts",
    "two slashes": "//bank/Accounts",
    "slash in the middle": "/bank//Accounts",
    "slash at the end": "/bank/Accounts/",
    "dot": "/bank/./Accounts",
    "case of the namespace": "/BANK/Accounts",
    "case of the topic": "/bank/accounts",
    "partition": "/bank/Accounts-part-0",
    "NUL": "/bank/Accounts\0",
    "new line": "/bank/Accounts\n/shop/orders",
    "space": "/bank/Accounts ",
    "parameters": "/bank/Accounts;/shop/orders",
    "wildcard": "/*/Accounts",
    "fullwidth letters": "/\uff42\uff41\uff4e\uff4b/Accounts",
    "fullwidth slash": "\uff0fbank\uff0fAccounts",
    "letters of another script": "/b\u0430nk/Accounts",
    "combining mark": "/ba\u0301nk/Accounts",
    "no width": "/bank/Acc\u200bounts",
    "ligature": "/bank/Accounts\ufb01",
}


# One broker for all tricks, because opening it takes longest.
@pytest.mark.parametrize("is_denied_everything_else", [True, False])
async def test_trick_with_a_name_shows_no_other_topic(
    broker, admin, mallory, is_denied_everything_else
):
    """The second time, the client may use all topics but those of the bank."""
    if not is_denied_everything_else:
        patterns = ["/shop/*", "/default/*", "/BANK/*", "/b\u0430nk/*"]
        await admin.security.add_binding(
            "user:mallory", ["admin"], patterns, binding_id="own"
        )
    asker = Asker(urls=urls_of(broker), credential=mallory)
    names = {"the name itself": SECRET, **TRICKS}
    for listener, (name, topic) in product(LISTENERS, names.items()):
        assert await asker.describe(listener, OWN) == OK
        if listener == "http" and not _fits_a_request_line(topic):
            continue
        found = await asker.describe(listener, topic)
        if found == REDIRECTED:
            # To the path without the slash at the end.
            found = await asker.describe(listener, topic.removesuffix("/"))
        assert found in {"permission_denied", *INVALID}, (listener, name, found)
    async with connected_as(broker.stream_url, mallory) as client:
        for topic in names.values():
            with suppress(pydanube.BrokerError):
                async with client.producer(topic) as producer:
                    await producer.send(b"forged")
    batches = [batch async for batch in admin.read(SECRET)]
    assert [each for batch in batches for each in batch.payloads] == [b"a secret"]


INVALID = {
    *("invalid_name", "invalid_argument", "invalid_request", "not_found"),
    *("topic_not_found", "namespace_not_found"),
}


def _fits_a_request_line(text):
    """Return whether the library of the test can send *text* as a path."""
    return text.isascii() and text.isprintable() and " " not in text


async def test_client_sees_no_other_topic_in_a_list(broker, admin, mallory):
    async with connected_as(broker.stream_url, mallory) as client:
        assert await client.topics.list() == [OWN]
        assert await client.namespaces.list() == ["shop"]
        assert SECRET in await admin.topics.list()
