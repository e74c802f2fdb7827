"""The credentials of a client."""

from __future__ import annotations

import asyncio

import pytest

import pydanube
from pydanube.client.connections.credentials import Credentials, credentials_of
from pydanube.model.errors import ConnectionLost, InvalidRequest, Unauthenticated
from pydanube.model.url_options import UrlOptions
from pydanube.security.api_keys import make_key
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import error_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.scripted_broker import ScriptedBroker

KEY = make_key(b"x" * 40).text


def found(token="", api_key="", options=None, may_be_plain=False, **environment):
    return credentials_of(
        *(token, api_key, options or UrlOptions(), environment),
        may_be_plain=may_be_plain,
    )


async def test_arguments_come_before_files_and_files_before_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text("from-file\n")
    options = UrlOptions(token_file=str(file))
    environment = {"DANUBE_TOKEN": "from-environment"}
    assert await found("given", "", options, **environment).get() == "given"
    assert await found("", KEY, options, **environment).get() == KEY
    assert await found("", "", options, **environment).get() == "from-file"
    assert await found(**environment).get() == "from-environment"
    assert await found(DANUBE_API_KEY=KEY).get() == KEY
    assert not found()
    assert await found().get() == ""


async def test_a_file_is_read_for_each_connection(tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY)
    credentials = found(options=UrlOptions(api_key_file=str(file)))
    assert credentials.is_renewed
    assert await credentials.get() == KEY
    file.write_text("damaged")
    with pytest.raises(ConnectionLost, match="API key is not complete"):
        await credentials.get()
    file.unlink()
    with pytest.raises(ConnectionLost, match="cannot be read"):
        await credentials.get()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        found(options=UrlOptions(api_key_file=str(file)))


async def test_functions_return_tokens():
    async def later():
        return "b"

    assert await found(lambda: "a").get() == "a"
    assert await found(later).get() == "b"


@pytest.mark.parametrize("wrong", [None, 7, b"x", "", " ", "a b", "ä"])
async def test_a_function_that_returns_no_token_has_failed(wrong):
    with pytest.raises(ConnectionLost, match="is to return the token has failed"):
        await found(lambda: wrong).get()


async def test_a_function_that_raises_has_failed():
    def failing():
        raise OSError("no answer")

    with pytest.raises(ConnectionLost, match="no answer"):
        await found(failing).get()


@pytest.mark.parametrize("wrong", ["a b", "a\nb", "ä", "x" * 20_000])
def test_malformed_tokens_are_refused_and_not_shown(wrong):
    with pytest.raises(InvalidRequest, match="printable ASCII") as refused:
        found(wrong)
    assert wrong not in str(refused.value)


def test_malformed_api_keys_are_refused_and_not_shown():
    with pytest.raises(InvalidRequest, match="not complete") as refused:
        found("", KEY[:-1])
    assert KEY[:-1] not in str(refused.value)
    with pytest.raises(InvalidRequest, match="a token and an API key"):
        found("t", KEY)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("danube://127.0.0.1", True),
        ("danube://127.9.9.9:1", True),
        ("danube://[::1]:6651", True),
        ("danube://localhost", True),
        ("danubes://broker.example", True),
        ("danube://broker.example", False),
        ("danube://10.0.0.1", False),
        ("danube://localhost.example", False),
        ("danube://127.0.0.1.example", False),
        ("danube://0.0.0.0", False),
    ],
)
def test_credentials_are_not_sent_readable_to_other_machines(url, is_allowed):
    credentials = found("t")
    if is_allowed:
        credentials.check_recipient(url)
    else:
        with pytest.raises(InvalidRequest, match="use danubes://"):
            credentials.check_recipient(url)
    found("t", may_be_plain=True).check_recipient(url)
    found().check_recipient(url)


def test_connect_refuses_to_send_credentials_readable():
    url = "danube://broker.example"
    with pytest.raises(InvalidRequest, match="allow_plaintext_credentials"):
        pydanube.connect(url, token="t")
    with pytest.raises(InvalidRequest, match="allow_plaintext_credentials"):
        pydanube.connect("danube://127.0.0.1,broker.example", api_key=KEY)


@pytest.mark.parametrize(("value", "is_allowed"), [("true", True), ("false", False)])
def test_url_allows_to_send_credentials_readable(value, is_allowed):
    options = UrlOptions.parse(f"allow_plaintext_credentials={value}")
    credentials = credentials_of("t", "", options, {}, may_be_plain=False)
    if is_allowed:
        credentials.check_recipient("danube://broker.example")
    else:
        with pytest.raises(InvalidRequest, match="use danubes://"):
            credentials.check_recipient("danube://broker.example")


def test_url_with_another_value_is_refused():
    with pytest.raises(InvalidRequest, match="'yes'; it must be true or false"):
        pydanube.connect("danube://b?allow_plaintext_credentials=yes", token="t")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"DANUBE_TOKEN": "t"}, "no (from the variable DANUBE_TOKEN)"),
        ({"DANUBE_API_KEY": KEY}, "no (from the variable DANUBE_API_KEY)"),
        ({"token": "t"}, "no"),
        ({}, "no"),
    ],
)
def test_errors_name_the_variable_of_refused_credentials(given, shown):
    assert found(**given).refused(Unauthenticated("no")) == shown


def test_secrets_are_not_shown():
    credentials = Credentials("secret", may_be_plain=False)
    assert "secret" not in repr(credentials)
    assert credentials.secrets == ["secret"]


SHORT_S = 0.01


class Renewals:
    """A broker whose identities expire soon, and the tokens that clients send."""

    def __init__(self, *expires_in_s):
        self.broker = ScriptedBroker()
        self.broker.identity = pb.Authenticated(expires_in_s=SHORT_S)
        self.broker.answers[Kind.AUTHENTICATE] = self.answer
        self.tokens = []
        self.is_done = asyncio.Event()
        self._expires_in_s = list(expires_in_s)

    def answer(self, message):
        self.tokens.append(message.token)
        expires_in_s = self._expires_in_s.pop(0)
        if not self._expires_in_s:
            self.is_done.set()
        if expires_in_s is None:
            return Kind.ERROR, error_to_wire(Unauthenticated("not this one"))
        return Kind.AUTHENTICATED, pb.Authenticated(expires_in_s=expires_in_s)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_token_is_renewed_before_it_expires(is_async):
    renewals, made = Renewals(SHORT_S, SHORT_S, 0.0), []

    def token():
        made.append(f"token-{len(made)}")
        return made[-1]

    async def later():
        return token()

    credentials = found(later if is_async else token)
    async with renewals.broker.connect(credentials=credentials):
        await renewals.is_done.wait()
        assert len(renewals.broker.connections) == 1
    assert renewals.tokens == made[1:] == ["token-1", "token-2", "token-3"]


async def test_a_renewal_that_failed_is_repeated(caplog):
    renewals = Renewals(None, 0.0)
    async with renewals.broker.connect(credentials=found(lambda: "secret")):
        await renewals.is_done.wait()
    assert renewals.tokens == ["secret", "secret"]
    assert "cannot renew the token" in caplog.text
    assert "not this one" in caplog.text
    assert "secret" not in caplog.text


async def test_a_token_that_stays_the_same_is_not_renewed():
    renewals = Renewals(0.0)
    async with renewals.broker.connect(credentials=found("secret")) as client:
        connection = await client.requester.connection()
        assert client.requester._pool.renewal_of(connection) is None
    assert not renewals.tokens
