"""The keys of an issuer, from a web server that may fail."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import InvalidConfig, Unavailable
from pydanube.security.tokens import KEYS_BYTES_MAX
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.issuer_keys import open_issuer_keys
from pydanube_broker.servers.settings.security_config import JwtConfig, SecurityConfig
from support.fakes.secured import AUDIENCE, ISSUER, KEYS, claims, jwks, signed
from support.servers.http_server import Answer, LocalServer


class Issuer:
    """An issuer, whose keys change."""

    def __init__(self):
        self.answer = Answer(200, jwks(KEYS["ES256"]).encode())

    def __call__(self, request):
        return self.answer

    def replace(self, *names):
        self.answer = Answer(200, jwks(*(KEYS[name] for name in names)).encode())


@pytest.fixture
def issuer():
    return Issuer()


@pytest.fixture
def server(issuer):
    with LocalServer(issuer) as server:
        yield server


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def config_of(server, **changes):
    return JwtConfig(
        **{"issuer": ISSUER, "audience": AUDIENCE, "keys_url": f"{server.url}/keys"}
        | changes
    )


async def authenticated(authenticator, token):
    """The principal of *token*, as soon as the broker can verify it."""
    while True:
        try:
            return authenticator.authenticate(token, "192.0.2.1").principal
        except Unavailable:
            await asyncio.sleep(0.01)


async def test_keys_are_fetched_and_fetched_again_for_a_new_key(server, issuer):
    clock, config = Clock(), config_of(server)
    async with open_issuer_keys(config, clock=clock) as source:
        security = SecurityConfig(enabled=True, jwt=config)
        authenticator = Authenticator(security, issuer_keys=source, clock=clock)
        old, new = signed(claims(), "ES256"), signed(claims(), "RS256")
        assert (await authenticated(authenticator, old)).name == "alice"
        fetched = len(server.requests)
        issuer.replace("RS256")
        # The broker has just fetched the keys.
        with pytest.raises(Exception, match="not one of the issuer's keys"):
            authenticator.authenticate(new, "192.0.2.1")
        assert len(server.requests) == fetched
        clock.now += config.keys_refresh_min_s
        assert (await authenticated(authenticator, new)).name == "alice"
        assert len(server.requests) == fetched + 1
        # What was verified with the old keys does not count any more.
        with pytest.raises(Exception, match="not one of the issuer's keys"):
            authenticator.authenticate(old, "192.0.2.1")


async def logged(caplog, text):
    """Wait until *text* is logged."""
    while text not in caplog.text:  # noqa: ASYNC110  # Nothing else tells.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500),
        Answer(302, headers={"location": "http://127.0.0.1:1/"}),
        Answer(200, b"x"),
        Answer(200, b"\xff"),
        Answer(200, b" " * (KEYS_BYTES_MAX + 1)),
    ],
)
async def test_a_failed_fetch_keeps_the_keys(server, issuer, answer, caplog):
    clock, config = Clock(), config_of(server)
    async with open_issuer_keys(config, clock=clock) as source:
        while True:
            try:
                known = source.get()
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        issuer.answer = answer
        clock.now += config.keys_refresh_min_s
        assert source.refresh_soon()
        await logged(caplog, "cannot fetch the keys")
        assert source.get() is known


async def test_without_keys_clients_are_told_to_try_again(server, issuer):
    issuer.answer = Answer(503)
    async with open_issuer_keys(config_of(server)) as source:
        with pytest.raises(Unavailable, match="has not fetched the keys"):
            source.get()


async def test_a_file_without_keys_is_refused(tmp_path):
    file = tmp_path / "keys"
    config = JwtConfig(issuer=ISSUER, audience=AUDIENCE, keys_file=str(file))
    for text in (None, "x"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(InvalidConfig, match="keys_file"):
            async with open_issuer_keys(config):
                pass


async def test_without_an_issuer_there_are_no_keys():
    async with open_issuer_keys(JwtConfig()) as source:
        assert source is None
