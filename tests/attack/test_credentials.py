"""Attacks on the identity of clients, each on all listeners of a broker."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

import pydanube
from support.fakes.listeners import LISTENERS, NOT_CONNECTED, OK, Asker, urls_of
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

UNAUTHENTICATED, DENIED = "unauthenticated", "permission_denied"
WITH_HEADERS = [name for name in LISTENERS if name != "stream"]


@asynccontextmanager
async def attacked(directory, **tls):
    """Run a broker with TLS that accepts keys, tokens and certificates; an asker."""
    files = write_certificates(directory)
    ca_file = files["ca"][0]
    keys_file = directory / "keys.json"
    keys_file.write_text(jwks())
    jwt = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys_file": str(keys_file),
        "leeway_s": 0.0,
    }
    async with secured(directory, tls=tls_settings(files) | tls, jwt=jwt) as broker:
        yield Asker(urls=urls_of(broker), ca_file=ca_file)


@pytest.fixture
async def asker(tmp_path):
    async with attacked(tmp_path) as asker:
        yield asker


@asynccontextmanager
async def administering(asker, directory):
    """Connect as the principal bootstrap."""
    async with pydanube.connect(
        asker.urls["stream"], ca_file=asker.ca_file, api_key=bootstrap_key(directory)
    ) as client:
        yield client


async def answers(asker, listeners=LISTENERS):
    return {name: await asker.look(name) for name in listeners}


def everywhere(code, listeners=LISTENERS):
    return dict.fromkeys(listeners, code)


# Tokens.


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(name):
    head = encoded({"alg": name, "typ": "JWT"})
    return f"{head}.{encoded(claims())}.{encoded(b'x')}"


def signed_with_public_key():
    """A token for which a public key is the secret of a symmetric algorithm."""
    secret = KEYS["RS256"].as_pem(private=False)
    return jws.serialize_compact(
        {"alg": "HS256", "kid": "rsa"},
        json.dumps(claims()),
        OctKey.import_key(base64.urlsafe_b64encode(secret).decode()),
        algorithms=["HS256"],
    )


def with_changed_claims():
    head, _, signature = signed(claims()).split(".")
    return f"{head}.{encoded(claims(sub='root'))}.{signature}"


def with_own_key(**header):
    own = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
    if "jwk" in header:
        header["jwk"] = own.as_dict(private=False)
    return signed(claims(), key=own, header=header)


FORGED = {
    "algorithm none": lambda: unsigned("none"),
    "algorithm NonE": lambda: unsigned("NonE"),
    "public key as secret": signed_with_public_key,
    "key of another type": lambda: signed(claims(), "RS256", header={"kid": "ec"}),
    "own key with the issuer's id": with_own_key,
    "own key in the header": lambda: with_own_key(jwk={}),
    "own RSA key": lambda: signed(
        claims(), "RS256", key=RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
    ),
    "changed claims": with_changed_claims,
    "expired": lambda: signed(claims(exp=now().timestamp() - 1)),
    "without an end": lambda: signed(claims(exp=None)),
    "not valid yet": lambda: signed(claims(nbf=now().timestamp() + 3600)),
    "for another audience": lambda: signed(claims(aud="other")),
    "for no audience": lambda: signed(claims(aud=None)),
    "of another issuer": lambda: signed(claims(iss="https://attacker.example")),
    "of the principal bootstrap": lambda: signed(claims(sub="bootstrap")),
    "of the principal anonymous": lambda: signed(claims(sub="anonymous")),
}


@pytest.mark.parametrize("name", FORGED)
async def test_forged_token_is_refused_on_all_listeners(asker, name):
    valid = replace(asker, credential=signed(claims()))
    assert await answers(valid) == everywhere(OK)
    forged = replace(asker, credential=FORGED[name]())
    assert await answers(forged) == everywhere(UNAUTHENTICATED)


async def test_token_of_a_withdrawn_key_is_refused_on_all_listeners(asker, tmp_path):
    old = replace(asker, credential=signed(claims(), "ES256"))
    new = replace(asker, credential=signed(claims(), "RS256"))
    # The broker remembers that it has verified this token.
    assert await answers(old) == everywhere(OK)
    (tmp_path / "keys.json").write_text(jwks(KEYS["RS256"]))
    assert await answers(new) == everywhere(OK)
    assert await answers(old) == everywhere(UNAUTHENTICATED)


# API keys.


async def test_revoked_key_is_refused_on_all_listeners(asker, tmp_path):
    async with administering(asker, tmp_path) as admin:
        key = (await admin.security.create_api_key("billing")).key
        rotated = (await admin.security.rotate_api_key("billing")).key
        clients = [replace(asker, credential=each) for each in (key, rotated)]
        for each in clients:
            assert await answers(each) == everywhere(OK)
        await admin.security.revoke_api_key("billing")
        # The name may be given again, and does not revive the old keys.
        await admin.security.create_api_key("billing")
    async with asyncio.timeout(60):
        while await clients[0].look("http") == OK:
            pass
    for each in clients:
        assert await answers(each) == everywhere(UNAUTHENTICATED)


async def test_key_with_the_id_of_another_is_refused_on_all_listeners(asker, tmp_path):
    async with administering(asker, tmp_path) as admin:
        first, second = [
            (await admin.security.create_api_key(name)).key
            for name in ("first", "second")
        ]
    prefix, key_id, _ = first.split("_", 2)
    mixed = f"{prefix}_{key_id}_{second.split('_', 2)[2]}"
    assert await answers(replace(asker, credential=mixed)) == everywhere(
        UNAUTHENTICATED
    )


# Identities in other headers.


IDENTITIES = (
    "x-danube-internal-broker",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-client-cert",
    "x-client-cert",
    "x-ssl-client-s-dn",
    "x-remote-user",
    "remote-user",
    "x-authenticated-user",
    "x-principal",
    "x-danube-principal",
    "x-original-user",
    "cookie",
)
"""Headers in which a proxy might say who the client is."""


async def test_identity_in_another_header_counts_for_nothing(asker, tmp_path):
    async with administering(asker, tmp_path) as admin:
        key = (await admin.security.create_api_key("mallory")).key
        for header in IDENTITIES:
            forged = {header: "bootstrap"}
            nobody = replace(asker, headers=forged)
            assert await answers(nobody, WITH_HEADERS) == everywhere(
                UNAUTHENTICATED, WITH_HEADERS
            ), header
            # A client with few permissions does not get those of the forged principal.
            mallory = replace(asker, credential=key, headers=forged)
            for listener in WITH_HEADERS:
                assert await mallory.look(listener) == OK, header
                found = await mallory.create(listener, "/default/forged")
                assert found == DENIED, header
        assert "/default/forged" not in await admin.topics.list()


NO_CREDENTIALS = (
    {"forwarded": 'for="127.0.0.1";by=bootstrap'},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-real-ip": "127.0.0.1"},
    {"host": "127.0.0.1"},
    {"authorization": "Basic Ym9vdHN0cmFwOg=="},
    {"authorization": "Bearer"},
    {"authorization": "Bearer bootstrap"},
    {"proxy-authorization": "Bearer bootstrap"},
    {"x-api-key": "bootstrap"},
    {"x-api-key": ""},
)


async def test_header_without_valid_credentials_is_refused(asker):
    for headers in NO_CREDENTIALS:
        listeners = ["http"] if "host" in headers else WITH_HEADERS
        found = await answers(replace(asker, headers=headers), listeners)
        assert found == everywhere(UNAUTHENTICATED, listeners), headers


# Certificates.


@pytest.mark.parametrize("mode", ["optional", "required"])
async def test_certificate_of_another_authority_is_refused_on_all_listeners(
    tmp_path, mode
):
    other = tmp_path / "other"
    other.mkdir()
    # The other authority has the same name.
    others = write_certificates(other)
    own = tmp_path / "own"
    own.mkdir()
    async with attacked(own, client_certificates=mode) as asker:
        trusted = replace(
            asker, certificate=(own / "client.pem", own / "client-key.pem")
        )
        assert await answers(trusted) == everywhere(OK)
        for name in ("client", "ca"):
            foreign = replace(asker, certificate=others[name])
            assert await answers(foreign) == everywhere(NOT_CONNECTED)
        # Credentials do not make up for it.
        foreign = replace(
            asker, certificate=others["client"], credential=bootstrap_key(own)
        )
        assert await answers(foreign) == everywhere(NOT_CONNECTED)


async def test_certificate_of_a_broker_is_no_identity_of_a_forwarded_call(tmp_path):
    async with attacked(tmp_path) as asker:
        forwarded = replace(
            asker,
            certificate=(tmp_path / "server.pem", tmp_path / "server-key.pem"),
            headers={"x-danube-forwarded": "1"},
        )
        assert await answers(forwarded, ["grpc", "admin"]) == everywhere(
            UNAUTHENTICATED, ["grpc", "admin"]
        )
