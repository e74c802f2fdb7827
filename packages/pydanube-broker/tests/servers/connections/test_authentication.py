"""The verification of credentials."""

from __future__ import annotations

import pytest

from pydanube.model.errors import QuotaExceeded, Unauthenticated, Unavailable
from pydanube.security.api_keys import make_key
from pydanube.security.failed_attempts import ATTEMPTS_MAX
from pydanube.security.principals import ANONYMOUS
from pydanube.security.scram import ScramChallenge, parse_start, salt_of
from pydanube.security.tokens import parse_keys
from pydanube_broker.broker.governance.api_keys import ApiKeys
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_broker.servers.connections.bootstrap_key import BootstrapKey
from pydanube_broker.servers.settings.security_config import JwtConfig, SecurityConfig
from support.fakes.memory_store import MemoryStore
from support.fakes.secured import AUDIENCE, ISSUER, claims, jwks, signed

NOW = 1_700_000_000
ADDRESS = "192.0.2.1"
BOOTSTRAP = make_key(b"b" * 40)
OTHER = make_key(b"o" * 40)
JWT = JwtConfig(issuer=ISSUER, audience=AUDIENCE, keys_file="x", leeway_s=0)


class Keys:
    """The keys of an issuer, which do not change."""

    generation = 1

    def __init__(self):
        self.keys = parse_keys(jwks())

    def get(self):
        return self.keys

    def refresh_soon(self):
        return False


class World:
    def __init__(self, **security):
        self.now_s = NOW
        self.clock_s = 0.0
        self.authenticator = Authenticator(
            SecurityConfig(**{"enabled": True, "jwt": JWT} | security),
            bootstrap=BootstrapKey(BOOTSTRAP),
            issuer_keys=Keys(),
            wall_clock_us=lambda: self.now_s * 1_000_000,
            clock=lambda: self.clock_s,
        )

    def __call__(self, credential, certificate=None):
        return self.authenticator.authenticate(credential, ADDRESS, certificate)


def test_without_security_everybody_is_anonymous():
    world = World(enabled=False)
    for credential in ("", OTHER.text, "anything"):
        assert world(credential) == ClientIdentity(ANONYMOUS)
    assert world.authenticator.is_valid(ClientIdentity(ANONYMOUS))


def test_without_security_nobody_can_use_scram():
    world = World(enabled=False)
    challenge = ScramChallenge(parse_start(b"n,,n=user,r=x"), "xy", salt_of("user"))
    with pytest.raises(Unauthenticated, match="connect without SASL"):
        world.authenticator.authenticate_scram(
            challenge, b"", ADDRESS, listener="kafka"
        )


def test_the_bootstrap_key_is_accepted_while_the_broker_starts():
    world = World()
    identity = world(BOOTSTRAP.text)
    assert identity.principal.name == "bootstrap"
    assert world.authenticator.is_valid(identity)
    with pytest.raises(Unavailable, match="is starting"):
        world(OTHER.text)


def test_api_keys_can_be_off():
    world = World(api_keys=False)
    assert world(BOOTSTRAP.text).principal.name == "bootstrap"
    with pytest.raises(Unauthenticated, match="accepts no API keys"):
        world(OTHER.text)


def test_a_token_that_was_verified_before_still_expires():
    world = World()
    token = signed(claims(NOW, exp=NOW + 10))
    identity = world(token)
    assert world(token) == identity
    assert world.authenticator.expires_in_s(identity) == 10
    world.now_s = NOW + 10
    assert not world.authenticator.is_valid(identity)
    assert "the token has expired" in str(world.authenticator.why_invalid(identity))
    with pytest.raises(Unauthenticated, match="has expired"):
        world(token)


def test_missing_credentials_do_not_count_as_failed_attempts():
    world = World()
    for _ in range(ATTEMPTS_MAX * 2):
        with pytest.raises(Unauthenticated, match="needs credentials"):
            world("")
    assert world(BOOTSTRAP.text)


def test_an_address_with_too_many_failed_attempts_waits():
    world = World()
    for _ in range(ATTEMPTS_MAX):
        with pytest.raises(Unauthenticated, match="malformed"):
            world("danube_x")
    for credential in ("danube_x", BOOTSTRAP.text, signed(claims(NOW))):
        with pytest.raises(QuotaExceeded, match=f"from {ADDRESS}.* again in 1 s"):
            world(credential)
    assert world.authenticator.authenticate(BOOTSTRAP.text, "192.0.2.2")
    world.clock_s += 1.0
    assert world(BOOTSTRAP.text)


def test_a_certificate_counts_without_other_credentials():
    certificate = {
        "subject": ((("commonName", "alice"),),),
        "notAfter": "Nov 14 23:00:00 2023 GMT",
    }
    world = World()
    identity = world("", certificate)
    assert (identity.principal.name, identity.principal.method) == (
        "alice",
        "certificate",
    )
    assert world.authenticator.is_valid(identity)
    world.now_s += 3600
    assert not world.authenticator.is_valid(identity)
    assert "certificate" in str(world.authenticator.why_invalid(identity))
    with pytest.raises(Unauthenticated, match="malformed"):
        world("danube_x", certificate)
    with pytest.raises(Unauthenticated, match="needs credentials"):
        World(certificates=False)("", certificate)


def test_refused_credentials_are_reported_without_them():
    world, told = World(), []
    keys = ApiKeys(MemoryStore(), wall_clock_us=lambda: 1, random_bytes=bytes)
    world.authenticator.on_serving(keys, lambda **failure: told.append(failure))
    secret = BOOTSTRAP.text[:-1] + "?"
    with pytest.raises(Unauthenticated):
        world.authenticator.authenticate(secret, ADDRESS, listener="http")
    [failure] = told
    assert (failure["address"], failure["listener"]) == (ADDRESS, "http")
    assert secret not in failure["reason"]


def test_failures_are_counted_by_method():
    world = World()
    for credential in (BOOTSTRAP.text[:-1] + "?", "a.b.c", "a.b.c", ""):
        with pytest.raises(Unauthenticated):
            world(credential)
    for _ in range(ATTEMPTS_MAX - 3):
        with pytest.raises(Unauthenticated):
            world("a.b.c")
    with pytest.raises(QuotaExceeded):
        world("a.b.c")
    assert world.authenticator.failed_count == {
        "api_key": 1,
        "token": ATTEMPTS_MAX - 1,
        "none": 1,
        "limited": 1,
    }
