"""Credentials on all listeners of a broker, right ones and wrong ones."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest

import pydanube
from pydanube.security.failed_attempts import ATTEMPTS_MAX
from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.frames import header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import danube_admin_pb2 as admin_pb
from pydanube.wire.pb import danube_api_pb2 as api_pb
from pydanube.wire.pb import health_pb2
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.wire.grpc.http2_frames import FrameType
from support.drivers.running import TOPIC, published
from support.fakes.grpc_calls import connected as connected_grpc
from support.fakes.http2_frames import (
    REQUEST,
    data,
    frame,
    handshake,
    headers_of,
    request,
    seen,
)
from support.fakes.secured import (
    AUDIENCE,
    ISSUER,
    KEYS,
    bootstrap_key,
    claims,
    jwks,
    now,
    secured,
    signed,
)
from support.servers.certificates import tls_settings, write_certificates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_credentials"),
]

WRONG_KEY = f"danube_{'0' * 16}_{'a' * 43}"
LOOKUP = "danube.Discovery/TopicLookup"
BROKERS = "danube_admin.BrokerAdmin/ListBrokers"


@pytest.fixture
async def broker(tmp_path):
    async with secured(tmp_path, superusers="root") as broker:
        yield broker


@pytest.fixture
async def admin(broker, tmp_path):
    async with pydanube.connect(
        broker.stream_url, api_key=bootstrap_key(tmp_path)
    ) as client:
        yield client


def port_of(url):
    return int(url.rpartition(":")[2])


def ask_http(url, **headers):
    """The status of a GET request, its headers and its JSON, if it has any."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, headers=named), timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


async def http_status(url, **headers):
    status, _, _ = await asyncio.to_thread(ask_http, url, **headers)
    return status


@asynccontextmanager
async def calling(url):
    async with connected_grpc(port_of(url)) as call:
        yield call


async def status_of(call, method, request, *metadata):
    try:
        await call(method, request, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_clients_without_valid_credentials_cannot_connect(broker):
    with pytest.raises(pydanube.Unauthenticated, match="this broker needs credentials"):
        async with pydanube.connect(broker.stream_url):
            pass
    with pytest.raises(pydanube.Unauthenticated, match="is unknown, was revoked"):
        async with pydanube.connect(broker.stream_url, api_key=WRONG_KEY):
            pass
    with pytest.raises(pydanube.Unauthenticated, match="accepts no tokens"):
        async with pydanube.connect(broker.stream_url, token="x.y.z"):
            pass


async def test_a_client_with_an_api_key_publishes_and_reads(broker, admin):
    created = await admin.security.create_api_key("billing", groups=["finance"])
    async with pydanube.connect(broker.stream_url, api_key=created.key) as client:
        await published(client, b"a", b"b")
        batches = [batch async for batch in client.read(TOPIC)]
        assert [each for batch in batches for each in batch.payloads] == [b"a", b"b"]
        identity = (await client.requester.connection()).welcome.identity
    assert (identity.principal, identity.method) == ("billing", "api_key")
    assert list(identity.groups) == ["finance"]
    assert identity.expires_in_s == 0


async def test_a_client_takes_its_api_key_from_the_environment(
    broker, admin, monkeypatch
):
    created = await admin.security.create_api_key("billing")
    monkeypatch.setenv("DANUBE_API_KEY", created.key)
    async with pydanube.connect(broker.stream_url) as client:
        assert await client.topics.list() == []


async def test_a_client_reads_its_api_key_from_a_file(broker, admin, tmp_path):
    created = await admin.security.create_api_key("billing")
    file = tmp_path / "api-key"
    file.write_text(f"{created.key}\n")
    url = f"{broker.stream_url}?api_key_file={file}"
    async with pydanube.connect(url) as client:
        assert await client.topics.list() == []
    file.write_text(WRONG_KEY)
    with pytest.raises(
        pydanube.Unauthenticated, match=f"expired .from the file {file}"
    ):
        async with pydanube.connect(url):
            pass


async def test_api_keys_are_listed_without_the_keys(broker, admin, tmp_path):
    later = now() + timedelta(days=1)
    created = await admin.security.create_api_key(
        "a", principal="alice", expires_at=later
    )
    await admin.security.create_api_key("b")
    listed = await admin.security.api_keys()
    assert [each.name for each in listed] == ["a", "b"]
    assert listed[0] == created.description
    assert listed[0].principal == "alice"
    assert listed[0].expires_at == round(later.timestamp() * 1_000_000)
    secret = created.key.split("_", 2)[2]
    assert secret not in repr((created, listed, admin))
    data = b"".join(
        each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file()
    )
    assert secret.encode() not in data
    assert listed[0].key_id.encode() in data


async def test_only_superusers_manage_api_keys(broker, admin):
    root, other = [
        await admin.security.create_api_key(name) for name in ("root", "other")
    ]
    async with pydanube.connect(broker.stream_url, api_key=other.key) as client:
        for refused in (
            client.security.api_keys(),
            client.security.create_api_key("more"),
            client.security.revoke_api_key("root"),
            client.security.rotate_api_key("other"),
        ):
            with pytest.raises(
                pydanube.PermissionDenied, match=r"not allowed|may not manage"
            ):
                await refused
    async with pydanube.connect(broker.stream_url, api_key=root.key) as client:
        assert len(await client.security.api_keys()) == 2


async def test_names_of_keys_and_principals_are_checked(admin):
    await admin.security.create_api_key("a")
    with pytest.raises(pydanube.AlreadyExists):
        await admin.security.create_api_key("a")
    for principal in ("bootstrap", "anonymous", "", " x", "x" * 300, "a\nb"):
        with pytest.raises(pydanube.InvalidRequest):
            await admin.security.create_api_key("b", principal=principal)
    with pytest.raises(pydanube.InvalidRequest, match="expired already"):
        await admin.security.create_api_key(
            "b", expires_at=datetime(2020, 1, 1, tzinfo=UTC)
        )
    with pytest.raises(pydanube.NotFound, match="no API key 'b'"):
        await admin.security.revoke_api_key("b")
    with pytest.raises(pydanube.NotFound, match="no API key 'b'"):
        await admin.security.rotate_api_key("b")


async def test_a_rotated_key_stays_valid_for_the_grace_time(broker, admin):
    first = await admin.security.create_api_key("billing")
    second = await admin.security.rotate_api_key("billing", grace=timedelta(hours=1))
    for key in (first.key, second.key):
        async with pydanube.connect(broker.stream_url, api_key=key):
            pass
    assert [each.expires_at is None for each in await admin.security.api_keys()] == [
        False,
        True,
    ]
    third = await admin.security.rotate_api_key("billing", grace=timedelta(0))
    for key in (first.key, second.key):
        with pytest.raises(pydanube.Unauthenticated):
            async with pydanube.connect(broker.stream_url, api_key=key):
                pass
    async with pydanube.connect(broker.stream_url, api_key=third.key):
        pass


async def test_a_revoked_key_ends_open_connections(broker, admin):
    created = await admin.security.create_api_key("billing")
    lost = asyncio.Queue()
    async with pydanube.connect(
        broker.stream_url, api_key=created.key, on_disconnected=lost.put_nowait
    ) as client:
        await published(client, b"a")
        async with calling(broker.grpc_url) as call:
            watching = call(
                "grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest()
            )
            await watching.read()
            stream = subscribe(call, created.key)
            await admin.security.revoke_api_key("billing")
            reason = await lost.get()
            assert "the API key was revoked" in str(reason)
            with pytest.raises(pydanube.Unauthenticated):
                await client.topics.list()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await (await stream).read()
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            watching.cancel()
    assert (
        await http_status(
            f"{broker.http_url}/metrics", authorization=f"Bearer {created.key}"
        )
        == 401
    )


async def subscribe(call, key):
    """Return the open stream of a consumer."""
    metadata = (("authorization", f"Bearer {key}"),)
    answer = await call(
        "danube.ConsumerService/Subscribe",
        api_pb.ConsumerRequest(
            request_id=1, topic_name=TOPIC, consumer_name="c", subscription="s"
        ),
        metadata=metadata,
    )
    return call(
        "danube.ConsumerService/ReceiveMessages",
        api_pb.ReceiveRequest(request_id=2, consumer_id=answer.consumer_id),
        metadata=metadata,
    )


async def test_an_expired_key_ends_open_connections(broker, admin):
    soon = now() + timedelta(seconds=2)
    created = await admin.security.create_api_key("billing", expires_at=soon)
    lost = asyncio.Queue()
    async with pydanube.connect(
        broker.stream_url, api_key=created.key, on_disconnected=lost.put_nowait
    ) as client:
        identity = (await client.requester.connection()).welcome.identity
        assert 0 < identity.expires_in_s <= 2
        assert "expired" in str(await lost.get())
        with pytest.raises(pydanube.Unauthenticated):
            await client.topics.list()
    assert await admin.security.api_keys() == []


async def test_grpc_needs_credentials(broker, admin):
    key = (await admin.security.create_api_key("billing")).key
    lookup = api_pb.TopicLookupRequest(topic=TOPIC)
    brokers = admin_pb.Empty()
    for url, method, asked in (
        (broker.grpc_url, LOOKUP, lookup),
        (broker.admin_url, BROKERS, brokers),
    ):
        async with calling(url) as call:

            async def status(*metadata, call=call, method=method, asked=asked):
                return await status_of(call, method, asked, *metadata)

            accepted = {"OK", "NOT_FOUND"}
            assert await status() == "UNAUTHENTICATED"
            assert await status(("authorization", f"Bearer {key}")) in accepted
            assert await status(("authorization", f"bearer {key}")) in accepted
            assert await status(("x-api-key", key)) in accepted
            for wrong in (
                [("x-danube-internal-broker", "anything")],
                [("x-forwarded-user", "bootstrap")],
                [("authorization", f"Basic {key}")],
                [("authorization", "Bearer ")],
                [("authorization", key)],
                [("x-api-key", WRONG_KEY)],
                [("x-api-key", key), ("authorization", f"Bearer {key}")],
                [("x-api-key", key), ("x-api-key", key)],
                [("authorization", f"Bearer {key} {key}")],
            ):
                assert await status(*wrong) == "UNAUTHENTICATED", wrong


async def test_a_call_that_began_before_its_key_was_revoked_is_refused(broker, admin):
    created = await admin.security.create_api_key("billing")
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker.grpc_url)
    )
    headers = (*REQUEST, (b"x-api-key", created.key.encode()))
    writer.write(handshake() + request(1, headers=headers))
    # An answer to PING comes after the headers were handled.
    writer.write(frame(FrameType.PING, body=b"12345678"))
    received = await reader.readuntil(b"12345678")
    await admin.security.revoke_api_key("billing")
    url = f"{broker.http_url}/metrics"
    while await http_status(url, x_api_key=created.key) == 200:
        pass
    body = api_pb.TopicLookupRequest(topic=TOPIC).SerializeToString()
    message = b"\0" + len(body).to_bytes(4, "big") + body
    writer.write(data(1, message, ends=True) + frame(FrameType.GOAWAY, body=bytes(8)))
    writer.write_eof()
    received += await reader.read()
    writer.close()
    answer = headers_of(seen([received]))
    assert answer["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0])


async def test_danube_clients_exchange_an_api_key_for_a_token(broker, admin):
    key = (await admin.security.create_api_key("billing")).key
    method = "danube.AuthService/Authenticate"
    async with calling(broker.grpc_url) as call:
        answer = await call(method, api_pb.AuthRequest(api_key=key))
        metadata = ("authorization", f"Bearer {answer.token}")
        lookup = api_pb.TopicLookupRequest(topic=TOPIC)
        assert await status_of(call, LOOKUP, lookup, metadata) == "NOT_FOUND"
        for wrong in ("", WRONG_KEY, "anonymous"):
            request = api_pb.AuthRequest(api_key=wrong)
            assert await status_of(call, method, request) == "UNAUTHENTICATED"


async def test_probes_need_no_credentials(broker):
    async with calling(broker.grpc_url) as call:
        answer = await call(
            "grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest()
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for path in ("/healthz", "/readyz"):
        assert await http_status(broker.http_url + path) == 200


async def test_http_needs_credentials(broker, admin):
    key = (await admin.security.create_api_key("billing")).key
    for path in ("/", "/metrics", "/api/v1/list_topics", "/api/v1/openapi.json", "/no"):
        url = broker.http_url + path
        status, headers, body = await asyncio.to_thread(ask_http, url)
        assert status == 401
        assert headers["www-authenticate"] == "Bearer"
        assert json.loads(body)["code"] == "unauthenticated"
        assert await http_status(url, x_api_key=key) in {200, 404}
        assert await http_status(url, authorization=f"Bearer {key}") in {200, 404}
        for wrong in (
            {"x_api_key": WRONG_KEY},
            {"authorization": f"Basic {key}"},
            {"x_api_key": key, "authorization": f"Bearer {key}"},
            {"x_danube_internal_broker": "1"},
            {"x_forwarded_user": "bootstrap"},
        ):
            assert await http_status(url, **wrong) in {401, 429}, wrong


async def test_failed_attempts_are_limited_by_address(broker, tmp_path):
    url = f"{broker.http_url}/metrics"
    for _ in range(ATTEMPTS_MAX):
        assert await http_status(url, x_api_key=WRONG_KEY) == 401
    while await http_status(url, x_api_key=WRONG_KEY) != 429:
        pass
    with pytest.raises(pydanube.QuotaExceeded, match="too many attempts"):
        await connected_again_and_again(broker.stream_url, WRONG_KEY)
    # Probes, and later attempts, are not affected.
    assert await http_status(f"{broker.http_url}/healthz") == 200
    key = bootstrap_key(tmp_path)
    while await http_status(url, x_api_key=key) == 429:
        pass
    assert await http_status(url, x_api_key=key) == 200


async def connected_again_and_again(url, key):
    while True:
        with suppress(pydanube.Unauthenticated):
            async with pydanube.connect(url, api_key=key):
                pass


async def test_secrets_are_not_logged(broker, admin, caplog):
    caplog.set_level(logging.DEBUG)
    created = await admin.security.create_api_key("billing")
    async with pydanube.connect(broker.stream_url, api_key=created.key) as client:
        assert created.key not in repr(client) + repr(vars(client))
    with pytest.raises(pydanube.Unauthenticated) as refused:
        async with pydanube.connect(broker.stream_url, api_key=WRONG_KEY):
            pass
    for secret in (created.key, WRONG_KEY):
        assert secret.split("_", 2)[2] not in caplog.text + str(refused.value)


@pytest.mark.parametrize(
    "sent",
    [
        StreamConnection(Side.CLIENT).request(Kind.PING, pb.Ping())[1],
        StreamConnection(Side.CLIENT).request(Kind.LIST_TOPICS, pb.ListTopics())[1],
        StreamConnection(Side.CLIENT).request(
            Kind.AUTHENTICATE, pb.Authenticate(token=WRONG_KEY)
        )[1],
        header(Kind.HELLO, 0, 1, 64 * 1024) + b"x",
        header(Kind.PUBLISH, 1, 0, 8 * 1024 * 1024),
    ],
    ids=["ping", "request", "authenticate", "long-hello", "long-batch"],
)
async def test_nothing_is_served_or_buffered_before_login(broker, sent):
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker.stream_url)
    )
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    # An error, and the end of the connection.
    assert answer[4] == Kind.ERROR
    assert b"protocol_violation" in answer
    assert len(answer) == 4 + int.from_bytes(answer[:4], "little")


# Tokens.


@pytest.fixture
async def token_broker(tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(jwks())
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(keys)}
    async with secured(tmp_path, jwt=jwt | {"leeway_s": 0.0}) as broker:
        yield broker


async def test_a_token_is_accepted_on_all_listeners(token_broker):
    token = signed(claims())
    async with pydanube.connect(token_broker.stream_url, token=token) as client:
        identity = (await client.requester.connection()).welcome.identity
        assert (identity.principal, identity.method) == ("alice", "token")
        assert list(identity.groups) == ["traders"]
    url = f"{token_broker.http_url}/metrics"
    assert await http_status(url, authorization=f"Bearer {token}") == 200
    assert await http_status(url, authorization=f"Bearer {token}x") == 401
    async with calling(token_broker.grpc_url) as call:
        lookup = api_pb.TopicLookupRequest(topic=TOPIC)
        metadata = ("authorization", f"Bearer {token}")
        assert await status_of(call, LOOKUP, lookup, metadata) == "NOT_FOUND"
        metadata = ("authorization", f"Bearer {signed(claims(exp=1))}")
        assert await status_of(call, LOOKUP, lookup, metadata) == "UNAUTHENTICATED"


async def test_an_expired_token_ends_the_connection(token_broker):
    now_s = now().timestamp()
    token = signed(claims(exp=now_s + 2))
    lost = asyncio.Queue()
    async with pydanube.connect(
        token_broker.stream_url, token=token, on_disconnected=lost.put_nowait
    ) as client:
        assert "the token has expired" in str(await lost.get())
        with pytest.raises(pydanube.Unauthenticated):
            await client.topics.list()


async def test_a_renewed_token_must_be_of_the_same_principal(token_broker):
    async with pydanube.connect(
        token_broker.stream_url, token=signed(claims())
    ) as client:
        connection = await client.requester.connection()
        with pytest.raises(pydanube.PermissionDenied, match="connection is that of"):
            await connection.authenticate(signed(claims(sub="mallory")))
        with pytest.raises(pydanube.Unauthenticated):
            await connection.authenticate("")
        assert await connection.authenticate(signed(claims(), "RS256")) > 3000
        assert await client.topics.list() == []


async def test_keys_of_an_issuer_are_replaced_while_the_broker_runs(tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(KEYS["ES256"]))
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(keys)}
    old, new = signed(claims(), "ES256"), signed(claims(), "RS256")
    async with secured(tmp_path, jwt=jwt) as broker:
        url = f"{broker.http_url}/metrics"
        assert await http_status(url, authorization=f"Bearer {old}") == 200
        assert await http_status(url, authorization=f"Bearer {new}") == 401
        keys.write_text(jwks(KEYS["RS256"]))
        assert await http_status(url, authorization=f"Bearer {new}") == 200
        assert await http_status(url, authorization=f"Bearer {old}") == 401


# Certificates.


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


@pytest.mark.parametrize("are_required", [False, True])
async def test_a_certificate_is_an_identity_on_all_listeners(
    tmp_path, files, are_required
):
    ca, _ = files["ca"]
    certificate, key = map(str, files["client"])
    tls = tls_settings(files, "required" if are_required else "optional")
    options = {"ca_file": ca, "certificate_file": certificate, "key_file": key}
    async with secured(tmp_path, tls=tls) as broker:
        async with pydanube.connect(broker.stream_url, **options) as client:
            identity = (await client.requester.connection()).welcome.identity
            assert (identity.principal, identity.method) == ("localhost", "certificate")
        # Credentials that are sent count, and wrong ones are not ignored.
        async with pydanube.connect(
            broker.stream_url, **options, api_key=bootstrap_key(tmp_path)
        ) as client:
            identity = (await client.requester.connection()).welcome.identity
            assert (identity.principal, identity.method) == ("bootstrap", "api_key")
        with pytest.raises(pydanube.Unauthenticated, match="is unknown"):
            async with pydanube.connect(
                broker.stream_url, **options, api_key=WRONG_KEY
            ):
                pass
        with pytest.raises(pydanube.Unauthenticated):
            async with pydanube.connect(broker.stream_url, ca_file=ca):
                pass
        credentials = grpc.ssl_channel_credentials(
            *(ca.read_bytes(), files["client"][1].read_bytes()),
            files["client"][0].read_bytes(),
        )
        async with grpc.aio.secure_channel(
            f"localhost:{port_of(broker.grpc_url)}", credentials
        ) as channel:
            lookup = channel.unary_unary(f"/{LOOKUP}")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await lookup(api_pb.TopicLookupRequest(topic=TOPIC).SerializeToString())
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert await asyncio.to_thread(https_status, broker.http_url, options) == 200


def https_status(url, options):
    import ssl

    context = ssl.create_default_context(cafile=options["ca_file"])
    context.load_cert_chain(options["certificate_file"], options["key_file"])
    with urlopen(f"{url}/metrics", context=context, timeout=60) as answer:
        return answer.status


async def test_certificates_can_be_no_identity(tmp_path, files):
    ca, _ = files["ca"]
    certificate, key = map(str, files["client"])
    tls = tls_settings(files, "required")
    options = {"ca_file": ca, "certificate_file": certificate, "key_file": key}
    async with secured(tmp_path, tls=tls, certificates=False) as broker:
        with pytest.raises(pydanube.Unauthenticated, match="needs credentials"):
            async with pydanube.connect(broker.stream_url, **options):
                pass
