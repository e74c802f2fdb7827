"""A login gets one token for one code, from the issuer that it began with."""

import base64
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from pydanube.model.errors import InvalidConfig, Unauthenticated, Unavailable
from pydanube_console.oidc import (
    PENDING_MAX,
    PENDING_S,
    OidcLogin,
    OidcSettings,
    challenge_of,
)
from support.servers.http_server import Answer, LocalServer

CALLBACK = "http://127.0.0.1:8090/login/callback"


def jwt(**claims):
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.c2ln"


class Issuer:
    """An issuer that keeps the requests for tokens."""

    def __init__(self):
        self.forms = []
        self.headers = []
        self.tokens = {"access_token": "the-access-token"}
        self.changes = {}

    def answer(self, request):
        if request.method == "GET":
            found = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize?tenant=1",
                "token_endpoint": f"{self.url}/token",
            }
            return Answer(200, json.dumps(found | self.changes).encode())
        self.headers.append(request.headers)
        self.forms.append(
            {name: value for name, [value] in parse_qs(request.body.decode()).items()}
        )
        if "error" in self.tokens:
            return Answer(400, json.dumps(self.tokens).encode())
        if "location" in self.tokens:
            return Answer(307, b"", {"location": self.tokens["location"]})
        return Answer(200, json.dumps(self.tokens).encode())

    def login(self, **options):
        known = {"issuer": self.url, "client_id": "console"}
        return OidcLogin(OidcSettings(**known | options), clock=lambda: self.now)

    now = 0.0


@pytest.fixture
def issuer():
    found = Issuer()
    with LocalServer(found.answer) as server:
        found.url = server.url
        yield found


def parameters_of(url):
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


async def test_code_becomes_a_token(issuer):
    login = issuer.login(scope="openid groups")
    key, url = await login.begin(CALLBACK, "/topics")
    assert url.startswith(f"{issuer.url}/authorize?tenant=1&")
    sent = parameters_of(url)
    assert (sent["client_id"], sent["scope"]) == ("console", "openid groups")
    assert sent["code_challenge_method"] == "S256"
    issuer.tokens["id_token"] = jwt(nonce=sent["nonce"])
    answer = {"code": "c", "state": sent["state"], "iss": issuer.url}
    assert await login.finish(key, answer) == ("the-access-token", "/topics")
    [form] = issuer.forms
    assert challenge_of(form["code_verifier"]) == sent["code_challenge"]
    assert (form["code"], form["redirect_uri"]) == ("c", CALLBACK)
    assert form["client_id"] == "console"
    with pytest.raises(Unauthenticated, match="this login has ended"):
        await login.finish(key, answer)


async def test_secret_of_the_console_is_sent_as_a_password(issuer):
    login = issuer.login(client_id="a:b", client_secret="hush/")
    key, url = await login.begin(CALLBACK, "/")
    await login.finish(key, {"code": "c", "state": parameters_of(url)["state"]})
    [(form, headers)] = zip(issuer.forms, issuer.headers, strict=True)
    encoded = headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(encoded) == b"a%3Ab:hush%2F"
    assert "client_secret" not in form
    assert "hush" not in repr(login.settings)


async def test_broker_may_get_the_id_token(issuer):
    login = issuer.login(sends="id")
    key, url = await login.begin(CALLBACK, "/")
    sent = parameters_of(url)
    token = issuer.tokens["id_token"] = jwt(nonce=sent["nonce"], sub="ada")
    assert await login.finish(key, {"code": "c", "state": sent["state"]}) == (
        token,
        "/",
    )


@pytest.mark.parametrize(
    ("answer", "tokens", "error"),
    [
        ({"state": "other"}, {}, "this login has ended, or is not yours"),
        ({"iss": "https://evil.example"}, {}, "comes from another issuer"),
        ({"code": None, "error": "access_denied"}, {}, "refused.*access_denied"),
        ({"code": None}, {}, "refused the login: no code"),
        ({}, {"error": "invalid_grant"}, "the issuer refuses the login"),
        ({}, {"id_token": jwt(nonce="other")}, "belongs to another login"),
        ({}, {"id_token": "malformed"}, "belongs to another login"),
        ({}, {"access_token": None}, "has sent no access_token"),
    ],
)
async def test_other_answers_are_refused(issuer, answer, tokens, error):
    login = issuer.login()
    key, url = await login.begin(CALLBACK, "/")
    issuer.tokens |= tokens
    given = {"code": "c", "state": parameters_of(url)["state"]} | answer
    with pytest.raises(Unauthenticated, match=error):
        await login.finish(
            key, {name: value for name, value in given.items() if value is not None}
        )


async def test_code_is_not_sent_to_another_address(issuer):
    login = issuer.login()
    key, url = await login.begin(CALLBACK, "/")
    issuer.tokens = {"location": f"{issuer.url}/elsewhere"}
    with pytest.raises(Unavailable, match="answers with status 307"):
        await login.finish(key, {"code": "c", "state": parameters_of(url)["state"]})
    assert len(issuer.forms) == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"issuer": "https://evil.example"}, "the configuration of another issuer"),
        (
            {"token_endpoint": "http://far.example/token"},
            "token_endpoint is 'http://far",
        ),
        ({"authorization_endpoint": "javascript:1"}, "authorization_endpoint is"),
    ],
)
async def test_configuration_of_the_issuer_is_checked(issuer, changes, error):
    issuer.changes = changes
    with pytest.raises(Unavailable, match=error):
        await issuer.login().begin(CALLBACK, "/")


async def test_logins_are_bounded_and_end(issuer):
    login = issuer.login()
    first, url = await login.begin(CALLBACK, "/")
    for _ in range(PENDING_MAX):
        last, url = await login.begin(CALLBACK, "/")
    answer = {"code": "c", "state": parameters_of(url)["state"]}
    with pytest.raises(Unauthenticated, match="has ended"):
        await login.finish(first, answer)
    issuer.now = PENDING_S
    with pytest.raises(Unauthenticated, match="has ended"):
        await login.finish(last, answer)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"issuer": "http://far.example"}, "the issuer is 'http://far.example'"),
        ({"issuer": ""}, "the issuer is ''"),
        ({"issuer": "https://a.example", "sends": "refresh"}, "use access or id"),
    ],
)
def test_settings_are_checked(options, error):
    with pytest.raises(InvalidConfig, match=error):
        OidcSettings(client_id="c", **options)
