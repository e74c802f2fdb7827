"""
The login by OpenID Connect: the authorization code flow with PKCE (RFC 7636).

The console gets a token from the issuer and gives it to the broker, which verifies it.
The console itself trusts no token.  At most ``PENDING_MAX`` logins are unfinished, and
each of them ends after ``PENDING_S``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pydanube.model.errors import InvalidConfig, Unauthenticated, Unavailable
from pydanube.security.addresses import is_loopback

PENDING_MAX = 1000
PENDING_S = 600.0
METADATA_S = 3600.0
"""For how long the addresses of the issuer are remembered."""
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 1024 * 1024
RANDOM_BYTES = 32
TOKENS = {"access": "access_token", "id": "id_token"}
"""The tokens that the broker can get, by the word in the options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The client of the console at an issuer."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    """Empty: the console is a public client."""
    scope: str = "openid"
    sends: str = "access"
    """The token that the broker gets: a key of ``TOKENS``."""

    def __post_init__(self) -> None:
        """
        Check the values.

        Raises:
            InvalidConfig: One is malformed.
        """
        _check_url("the issuer", self.issuer)
        if self.sends not in TOKENS:
            raise InvalidConfig(
                f"the token for the broker is {self.sends!r}; use access or id"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A login that has begun."""

    state: str
    nonce: str
    verifier: str = field(repr=False)
    redirect_uri: str
    target: str
    """The page that is shown afterwards."""
    begun_at: float


class OidcLogin:
    """The logins at one issuer."""

    def __init__(
        self, settings: OidcSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._pending: dict[str, Pending] = {}
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0

    async def begin(self, redirect_uri: str, target: str) -> tuple[str, str]:
        """
        Begin a login; return a key for the browser, and the address where it goes on.

        Raises:
            Unavailable: The issuer does not answer as it must.
        """
        metadata = await self._issuer_metadata()
        now = self._clock()
        self._forget_old(now)
        key, state, nonce, verifier = (
            secrets.token_urlsafe(RANDOM_BYTES) for _ in range(4)
        )
        self._pending[key] = Pending(
            state=state,
            nonce=nonce,
            verifier=verifier,
            redirect_uri=redirect_uri,
            target=target,
            begun_at=now,
        )
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        address = metadata["authorization_endpoint"]
        mark = "&" if urlsplit(address).query else "?"
        return key, f"{address}{mark}{urlencode(query)}"

    async def finish(self, key: str, answer: Mapping[str, str]) -> tuple[str, str]:
        """
        End the login of *key* with the *answer* that the browser has brought.

        Returns: The token for the broker, and the page to show.

        Raises:
            Unauthenticated: It is not the answer to this login, or a refusal.
            Unavailable: The issuer does not answer as it must.
        """
        self._forget_old(self._clock())
        pending = self._pending.pop(key, None)
        if pending is None or not secrets.compare_digest(
            pending.state.encode(), answer.get("state", "").encode()
        ):
            raise Unauthenticated("this login has ended, or is not yours: begin again")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise Unauthenticated("the answer comes from another issuer")
        if "code" not in answer:
            reason = answer.get("error_description") or answer.get("error") or "no code"
            raise Unauthenticated(f"the issuer has refused the login: {reason[:200]}")
        tokens = await self._exchange(pending, answer["code"])
        if "id_token" in tokens and _claims(tokens["id_token"]).get("nonce") != (
            pending.nonce
        ):
            raise Unauthenticated("the token belongs to another login")
        token = tokens.get(TOKENS[self.settings.sends])
        if not isinstance(token, str) or not token:
            raise Unauthenticated(
                f"the issuer has sent no {TOKENS[self.settings.sends]}"
            )
        return token, pending.target

    def _forget_old(self, now: float) -> None:
        for key, each in list(self._pending.items()):
            is_full = len(self._pending) >= PENDING_MAX
            if each.begun_at + PENDING_S > now and not is_full:
                # Later ones began later.
                break
            del self._pending[key]

    async def _exchange(self, pending: Pending, code: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        headers: dict[str, str] = {}
        client = self.settings.client_id
        if secret := self.settings.client_secret:
            # Issuers must support this way, but not a secret in the form.
            pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
            encoded = base64.b64encode(pair.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        else:
            form["client_id"] = client
        url = (await self._issuer_metadata())["token_endpoint"]
        data = urlencode(form).encode()
        return await asyncio.to_thread(_fetch, url, data, headers)

    async def _issuer_metadata(self) -> dict[str, Any]:
        if self._clock() >= self._metadata_until:
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await asyncio.to_thread(_fetch, url)
            if found.get("issuer") != self.settings.issuer:
                raise Unavailable(f"{url} is the configuration of another issuer")
            for name in ("authorization_endpoint", "token_endpoint"):
                try:
                    _check_url(name, str(found.get(name, "")))
                except InvalidConfig as error:
                    raise Unavailable(str(error)) from None
            self._metadata = found
            self._metadata_until = self._clock() + METADATA_S
        return self._metadata


def challenge_of(verifier: str) -> str:
    """Return the challenge of a verifier, by the method S256."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _claims(token: object) -> dict[str, Any]:
    """Return the claims of a token; the broker verifies the signature."""
    try:
        part = str(token).split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _check_url(what: str, url: str) -> None:
    address = urlsplit(url)
    is_local = address.scheme == "http" and is_loopback(address.hostname or "")
    if not address.hostname or not (address.scheme == "https" or is_local):
        raise InvalidConfig(
            f"{what} is {url[:200]!r}; it must be a URL with https, or with http on "
            "this machine"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the code to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(
    url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """
    Return the JSON at *url*; with a *form*, that of its answer.

    Raises:
        Unauthenticated: The issuer refuses the form.
        Unavailable: It does not answer, or not with JSON.
    """
    request = urllib.request.Request(  # noqa: S310  # The scheme was checked.
        url, data=form, headers={"Accept": "application/json"} | dict(headers or {})
    )
    try:
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            if form is not None and error.code in {400, 401, 403}:
                raise Unauthenticated("the issuer refuses the login") from None
        raise Unavailable(f"{url} answers with status {error.code}") from None
    except (OSError, ValueError) as error:
        raise Unavailable(f"{url} does not answer: {error}") from None
    if not isinstance(found, dict):
        raise Unavailable(f"{url} does not answer with an object")
    return found
