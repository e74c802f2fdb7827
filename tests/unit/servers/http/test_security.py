"""Roles, bindings and API keys in the JSON API."""

from __future__ import annotations

import secrets
from types import SimpleNamespace

import pytest

from pydanube.broker.api_keys import open_api_keys
from pydanube.metadata.sqlite import open_sqlite
from pydanube.security.principals import Principal
from support.http_api import Api, State, http_of
from support.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ROLE = {"permissions": ["produce", "consume"], "patterns": ["/shop/*"]}
BINDING = {
    "member": "user:carol",
    "roles": ["trader"],
    "patterns": ["/shop/orders"],
    "is_service_account": False,
}
BOOTSTRAP = Principal("bootstrap", "api_key")


@pytest.fixture
async def secured():
    """The API of a broker with security, for the principal that a test chooses."""
    identity = ChosenIdentity()
    identity.principal = ROOT
    async with (
        guarded_broker() as memory,
        client_of(memory, ROOT) as client,
        open_sqlite(None) as store,
        open_api_keys(
            store,
            wall_clock_us=lambda: 1_000_000,
            random_bytes=secrets.token_bytes,
        ) as api_keys,
        http_of(State(memory.broker), authenticator=identity) as http,
    ):
        identity.on_serving(api_keys, memory.broker.audit.record_failed_authentication)
        yield SimpleNamespace(api=Api(http, client), identity=identity)


@pytest.fixture
async def api(secured):
    return secured.api


async def test_roles_are_defined_listed_and_deleted(api):
    described = {"name": "trader", **ROLE, "is_built_in": False}
    described["permissions"] = ["consume", "produce"]
    assert await api.put("/security/roles/trader", ROLE) == described
    roles = (await api.get("/security/roles"))["roles"]
    assert described in roles
    assert {"admin", "viewer"} < {each["name"] for each in roles if each["is_built_in"]}
    await api.delete("/security/roles/trader")
    assert described not in (await api.get("/security/roles"))["roles"]
    answer = await api.ask("DELETE", "/security/roles/trader", status=404)
    assert answer["code"] == "role_not_found"


async def test_mistakes_in_roles_are_explained(api):
    wrong = {"permissions": ["publish"]}
    answer = await api.put("/security/roles/trader", wrong, 400)
    assert "there is no permission 'publish'" in answer["message"]
    answer = await api.put("/security/roles/admin", ROLE, 400)
    assert "admin" in answer["message"]
    answer = await api.put("/security/roles/trader", {"permission": []}, 400)
    assert "permission" in answer["message"]


async def test_bindings_are_added_listed_and_removed(api):
    await api.put("/security/roles/trader", ROLE)
    added = await api.post("/security/bindings", BINDING)
    assert added == BINDING | {"id": added["id"]}
    named = await api.post("/security/bindings", BINDING | {"id": "carol"})
    assert named["id"] == "carol"
    listed = (await api.get("/security/bindings"))["bindings"]
    assert sorted(each["id"] for each in listed) == sorted([added["id"], "carol"])
    await api.ask("DELETE", "/security/roles/trader", status=409)
    for each in listed:
        await api.delete(f"/security/bindings/{each['id']}")
    assert await api.get("/security/bindings") == {"bindings": []}
    answer = await api.ask("DELETE", "/security/bindings/carol", status=404)
    assert answer["code"] == "binding_not_found"


async def test_rule_that_decides_is_named(api):
    await api.put("/security/roles/trader", ROLE)
    await api.post("/security/bindings", BINDING | {"id": "carol"})
    path = "/security/can?permission=produce&member=user:carol&resource="
    found = await api.get(f"{path}/shop/orders")
    assert found["allowed"]
    assert "carol" in found["rule"]
    assert not (await api.get(f"{path}/shop/returns"))["allowed"]
    assert (await api.get("/security/can?permission=produce&resource=/a/b"))["allowed"]
    answer = await api.get("/security/can?permission=produce", 400)
    assert "?resource=" in answer["message"]


async def test_client_is_told_who_it_is(secured):
    secured.identity.principal = Principal("alice", "token", ("traders",))
    assert await secured.api.get("/security/whoami") == {
        "name": "alice",
        "method": "token",
        "groups": ["traders"],
        "is_superuser": False,
        "is_enforced": True,
    }


async def test_keys_are_created_listed_rotated_and_revoked(secured):
    api = secured.api
    # The policy of the broker has another superuser than the settings.
    await api.post(
        "/security/bindings",
        {"member": "user:bootstrap", "roles": ["admin"], "patterns": ["*"]},
    )
    secured.identity.principal = BOOTSTRAP
    created = await api.post("/security/keys", {"name": "billing", "groups": ["shop"]})
    assert created["key"].startswith("danube_")
    description = created["description"]
    assert (description["principal"], description["groups"]) == ("billing", ["shop"])
    assert await api.get("/security/keys") == {"keys": [description]}
    body = {"grace_s": 10, "expires_at": 5_000_000}
    rotated = await api.post("/security/keys/billing/rotate", body)
    assert rotated["key"] != created["key"]
    keys = (await api.get("/security/keys"))["keys"]
    assert [each["expires_at"] for each in keys] == [11_000_000, 5_000_000]
    answer = await api.post("/security/keys/billing/rotate", {"grace_s": -1}, 400)
    assert "grace time" in answer["message"]
    await api.delete("/security/keys/billing")
    assert await api.get("/security/keys") == {"keys": []}
    answer = await api.ask("DELETE", "/security/keys/billing", status=404)
    assert "no API key 'billing'" in answer["message"]


async def test_broker_without_security_has_no_keys(broker, client):
    async with http_of(State(broker.broker)) as http:
        api = Api(http, client)
        answer = await api.post("/security/keys", {"name": "a"}, 400)
        assert "set security.enabled" in answer["message"]
        # Roles can be prepared.
        await api.put("/security/roles/trader", ROLE)
        found = await api.get("/security/whoami")
        assert (found["name"], found["is_enforced"]) == ("anonymous", False)
