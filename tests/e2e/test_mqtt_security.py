"""Clients of MQTT have credentials, permissions and TLS as all other clients."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

import pydanube
from pydanube.security.failed_attempts import ATTEMPTS_MAX
from pydanube_mqtt.wire.packets import V5, V311, Property, Publish, Reason, Will
from support.drivers.mqtt_clients import (
    VERSIONS,
    MqttClient,
    mqtt_client,
    persistent,
    rule,
    trusting,
)
from support.fakes.secured import bootstrap_key, claims, jwks, secured, signed
from support.servers.certificates import tls_settings, write_certificates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_credentials"),
]

REASON_STRING = Property.REASON_STRING
WRONG_KEY = f"danube_{'0' * 16}_{'a' * 43}"
MQTT = {
    "port": 0,
    "rules": (rule("in/#", "/default/in"), rule("out/#", "/default/out")),
}


@pytest.fixture
async def broker(tmp_path):
    async with secured(tmp_path, mqtt=MQTT) as broker:
        yield broker


@pytest.fixture
async def admin(broker, tmp_path):
    async with pydanube.connect(
        broker.stream_url, api_key=bootstrap_key(tmp_path)
    ) as client:
        yield client


async def device_key(admin, name="device"):
    """Create a device that may publish to one topic and consume the other."""
    created = await admin.security.create_api_key(name)
    await admin.security.add_binding(f"user:{name}", ["producer"], ["/default/in"])
    await admin.security.add_binding(f"user:{name}", ["consumer"], ["/default/out"])
    return created.key


@asynccontextmanager
async def device(broker, key, client_id="d", **fields):
    async with mqtt_client(
        broker, client_id, username="x", password=key.encode(), **fields
    ) as client:
        yield client


@VERSIONS
@pytest.mark.parametrize("password", [None, b"", WRONG_KEY.encode(), b"\xff", b"x.y.z"])
async def test_clients_without_valid_credentials_are_refused(broker, version, password):
    async with mqtt_client(broker, version=version) as client:
        answer = await client.connect("c", username="x", password=password)
        assert answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD
        assert await client.ends() == []


async def test_addresses_with_many_failures_have_to_wait(broker, admin):
    key = await device_key(admin)
    for _ in range(ATTEMPTS_MAX):
        async with mqtt_client(broker) as client:
            await client.connect("c", username="x", password=WRONG_KEY.encode())
    async with mqtt_client(broker) as client:
        answer = await client.connect("c", username="x", password=key.encode())
        assert answer.reason is Reason.CONNECTION_RATE_EXCEEDED


async def test_permissions_are_those_on_the_topics_of_the_broker(broker, admin):
    key = await device_key(admin)
    async with device(broker, key) as client:
        assert await client.publish("in/1", b"x") == Reason.SUCCESS
        assert await client.publish("out/1", b"x") == Reason.NOT_AUTHORIZED
        refused = Reason.NOT_AUTHORIZED
        assert await client.subscribe("out/#", "in/#", "#", "$share/g/in/#") == [
            *(Reason.SUCCESS, refused, refused, refused)
        ]
    async with device(broker, key, version=V311) as client:
        client.send(Publish(topic="out/1", payload=b"", qos=1, packet_id=1))
        assert await client.ends() == []


async def test_a_will_needs_the_permission_to_publish(broker, admin):
    key = await device_key(admin)
    async with mqtt_client(broker) as client:
        will = Will(topic="out/1", payload=b"x")
        answer = await client.connect(
            "d", username="x", password=key.encode(), will=will
        )
        assert answer.reason is Reason.NOT_AUTHORIZED


async def test_a_revoked_key_ends_the_connection(broker, admin):
    key = await device_key(admin)
    async with device(broker, key) as client:
        await admin.security.revoke_api_key("device")
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.NOT_AUTHORIZED


async def test_a_lost_permission_ends_the_connection(broker, admin):
    created = await admin.security.create_api_key("watcher")
    binding = await admin.security.add_binding(
        "user:watcher", ["consumer"], ["/default/out"]
    )
    async with device(broker, created.key) as client:
        await client.subscribe("out/#")
        await admin.security.remove_binding(binding)
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.NOT_AUTHORIZED


async def test_the_session_of_a_principal_is_not_for_others(broker, admin):
    mine, other = await device_key(admin), await device_key(admin, "other")
    async with device(broker, mine, "same"), mqtt_client(broker) as client:
        answer = await client.connect("same", username="x", password=other.encode())
        assert answer.reason is Reason.CLIENT_IDENTIFIER_NOT_VALID
    async with device(broker, other, "same"):
        pass


@VERSIONS
async def test_a_client_without_any_permission_has_no_session(broker, admin, version):
    created = await admin.security.create_api_key("stranger")
    fields = {"username": "x", "password": created.key.encode(), **persistent(version)}
    fields.pop("version")
    async with mqtt_client(broker, version=version) as client:
        answer = await client.connect("victim", **fields)
        assert answer.reason is Reason.NOT_AUTHORIZED
        assert await client.ends() == []
    async with device(broker, await device_key(admin), "victim") as client:
        assert not client.answer.session_present


async def test_a_client_id_is_free_when_its_owner_has_lost_all_permissions(
    broker, admin
):
    created = await admin.security.create_api_key("former")
    binding = await admin.security.add_binding(
        "user:former", ["producer"], ["/default/in"]
    )
    key = await device_key(admin)
    async with device(broker, created.key, "same", **persistent(V5)) as client:
        await admin.security.remove_binding(binding)
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.NOT_AUTHORIZED
    async with device(broker, key, "same") as client:
        assert not client.answer.session_present


async def stored(admin, *payloads):
    """Publish an end, and assert that the topic has *payloads* before it."""
    async with admin.producer("/default/in") as producer:
        await producer.send(b"end")
    found = [p async for batch in admin.read("/default/in") for p in batch.payloads]
    assert found == [*payloads, b"end"]


WILL = Will(topic="in/1", payload=b"will")


async def test_a_will_is_published_with_the_permission(broker, admin):
    key = await device_key(admin)
    async with device(broker, key, will=WILL) as client:
        client.abort()
    async with device(broker, key):
        # The connection of this client id before has ended.
        await stored(admin, b"will")


async def test_a_will_is_not_published_after_its_permission_was_taken_away(
    broker, admin
):
    created = await admin.security.create_api_key("device")
    binding = await admin.security.add_binding(
        "user:device", ["producer"], ["/default/in"]
    )
    await admin.security.add_binding("user:device", ["consumer"], ["/default/out"])
    async with device(broker, created.key, will=WILL) as client:
        await client.subscribe("out/#")
        await admin.security.remove_binding(binding)
        client.abort()
    async with device(broker, created.key):
        await stored(admin)


@pytest.mark.parametrize("loss", ["permission", "key"])
async def test_a_client_that_is_disconnected_for_a_loss_leaves_no_will(
    broker, admin, loss
):
    created = await admin.security.create_api_key("device")
    binding = await admin.security.add_binding(
        "user:device", ["producer"], ["/default/in"]
    )
    async with device(broker, created.key, will=WILL) as client:
        if loss == "key":
            await admin.security.revoke_api_key("device")
        else:
            await admin.security.remove_binding(binding)
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.NOT_AUTHORIZED
    await stored(admin)


async def test_sessions_count_against_the_quota_of_their_principal(broker, admin):
    key = await device_key(admin)
    await admin.security.set_quota("user:device", pydanube.Quota(sessions=2))
    for name in ("a", "b", "a"):
        async with device(broker, key, name, **persistent(V5)) as client:
            await client.disconnect()
    async with mqtt_client(broker) as client:
        fields = {**persistent(V5), "username": "x", "password": key.encode()}
        fields.pop("version")
        answer = await client.connect("c", **fields)
        assert answer.reason is Reason.QUOTA_EXCEEDED
        assert "sessions of user:device is 2" in answer.properties[REASON_STRING]
    # Sessions that end with their connection are no such sessions.
    async with device(broker, key, "c"):
        pass
    found = await admin.security.describe_quota("user:device")
    assert found.used["sessions"] == 2
    # A clean start ends a session.
    async with device(broker, key, "a"):
        pass
    async with device(broker, key, "c", **persistent(V5)):
        found = await admin.security.describe_quota("user:device")
        assert found.used["sessions"] == 2


async def test_tokens_are_passwords(tmp_path):
    (tmp_path / "keys.json").write_text(jwks())
    jwt = {
        "issuer": claims()["iss"],
        "audience": claims()["aud"],
        "keys_file": str(tmp_path / "keys.json"),
    }
    async with (
        secured(tmp_path, mqtt=MQTT, jwt=jwt) as broker,
        device(broker, signed(claims())) as client,
    ):
        assert await client.publish("in/1", b"x") == Reason.SUCCESS


async def test_certificates_are_credentials(tmp_path):
    files = write_certificates(tmp_path)
    async with secured(
        tmp_path, mqtt=MQTT, tls=tls_settings(files, "optional")
    ) as broker:
        context = trusting(files["ca"][0], *files["client"])
        async with mqtt_client(broker, "c", tls=context) as client:
            assert isinstance(client, MqttClient)
            # Its principal is the name in the certificate, localhost.
            assert await client.publish("in/1", b"x") == Reason.SUCCESS
        async with mqtt_client(broker, tls=trusting(files["ca"][0])) as client:
            answer = await client.connect("c")
            assert answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD
