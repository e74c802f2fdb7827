"""The credentials of a client, and the brokers that may get them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path

from pydanube.client.connections.urls import parse_url, uses_tls
from pydanube.model.errors import ConnectionLost, InvalidRequest
from pydanube.model.redaction import mask, without_password
from pydanube.model.url_options import UrlOptions
from pydanube.security.addresses import is_loopback
from pydanube.security.api_keys import KEY_PREFIX, parse_key
from pydanube.security.credentials import CREDENTIAL_CHARACTERS_MAX

TOKEN_VARIABLE = "DANUBE_TOKEN"  # noqa: S105  # Its name.
API_KEY_VARIABLE = "DANUBE_API_KEY"

TokenSource = Callable[[], str | Awaitable[str]]
"""Returns a token; called for each connection, and before the token expires."""


class Credentials:
    """A token, a source of tokens, or an API key; or none of them."""

    def __init__(
        self,
        source: str | TokenSource = "",
        *,
        may_be_plain: bool,
        origin: str | None = None,
    ) -> None:
        """
        Use the token or the API key that *source* is or returns.

        *may_be_plain*: Whether they may be sent to other machines without TLS.
        *origin*: The file or variable that they are read from, for errors.
        """
        self._source = source
        self._may_be_plain = may_be_plain
        self._origin = origin
        # The last one, for texts from which it is removed.
        self._last = source if isinstance(source, str) else ""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._source)

    def __repr__(self) -> str:
        return f"Credentials({'***' if self else ''})"

    @property
    def secrets(self) -> list[str]:
        """The texts that logs and errors must not contain."""
        return [self._last]

    @property
    def is_renewed(self) -> bool:
        """Whether there may be a new token before the last one expires."""
        return not isinstance(self._source, str)

    def refused(self, error: Exception) -> str:
        """Return the text of *error*, which refuses them, and where they are from."""
        return f"{error}" if self._origin is None else f"{error} ({self._origin})"

    async def get(self) -> str:
        """
        Return the token or the API key for a connection; empty: none.

        Raises:
            ConnectionLost: The source has failed or returned no token.
        """
        if isinstance(self._source, str):
            return self._source
        try:
            found = self._source()
            token = await found if isawaitable(found) else found
            self._last = _checked("the token", token)
        except Exception as error:
            # The next attempt may succeed.
            raise ConnectionLost(
                f"the function or file that is to return the token has failed: "
                f"{mask(str(error), self.secrets)} ({type(error).__name__})"
            ) from error
        return self._last

    def check_recipient(self, url: str) -> None:
        """
        Raise if the credentials must not be sent to *url*.

        Raises:
            InvalidRequest: The broker is on another machine, and without TLS.
        """
        if not self or self._may_be_plain or uses_tls(url):
            return
        host, _ = parse_url(url)
        if not is_loopback(host):
            raise InvalidRequest(
                f"{without_password(url)} is on another machine and without TLS, which "
                "would send the credentials readable over the network: use danubes://, "
                "or allow_plaintext_credentials=True (in a URL =true) if the network "
                "is trusted"
            )


NO_CREDENTIALS = Credentials(may_be_plain=True)


def credentials_of(
    token: str | TokenSource,
    api_key: str,
    options: UrlOptions,
    environment: Mapping[str, str],
    *,
    may_be_plain: bool,
) -> Credentials:
    """
    Return the credentials that a caller gives, the URL names, or *environment* has.

    *may_be_plain*, or the option of the URL, allows to send them to other machines
    without TLS.

    Raises:
        InvalidRequest: There are several, or one is malformed.
    """
    given: list[tuple[str | TokenSource, str | None]] = []
    if token:
        own = _checked("token", token) if isinstance(token, str) else token
        given.append((own, None))
    if api_key:
        given.append((_checked_key(api_key), None))
    if not given:
        for name, path in (
            ("token_file", options.token_file),
            ("api_key_file", options.api_key_file),
        ):
            if path is not None:
                given.append((_from_file(name, path), f"from the file {path}"))
    if not given:
        if text := environment.get(TOKEN_VARIABLE):
            own = _checked(TOKEN_VARIABLE, text)
            given.append((own, f"from the variable {TOKEN_VARIABLE}"))
        if text := environment.get(API_KEY_VARIABLE):
            own = _checked_key(text)
            given.append((own, f"from the variable {API_KEY_VARIABLE}"))
    if len(given) > 1:
        raise InvalidRequest(
            "a token and an API key are given: a client has one of both"
        )
    source, origin = given[0] if given else ("", None)
    return Credentials(
        source,
        may_be_plain=may_be_plain or options.allows_plaintext_credentials,
        origin=origin,
    )


def _from_file(name: str, path: str) -> TokenSource:
    """Return a source of the token or API key that the file has at the moment."""
    file = Path(path)

    def read() -> str:
        try:
            with file.open("rb") as opened:
                data = opened.read(CREDENTIAL_CHARACTERS_MAX + 2)
        except OSError as error:
            raise InvalidRequest(
                f"{name}: the file {path} cannot be read: {error.strerror or error}"
            ) from error
        text = data.decode("latin-1")
        return _checked_key(text) if name == "api_key_file" else _checked(name, text)

    # A missing file is a mistake of the caller, not of a later connection.
    read()
    return read


def _checked(what: str, given: object) -> str:
    """Return the text *given* without spaces around it."""
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} must be a str, not {type(given).__name__}")
    text = given.strip()
    if (
        not 0 < len(text) <= CREDENTIAL_CHARACTERS_MAX
        or not (text.isascii() and text.isprintable())
        or " " in text
    ):
        raise InvalidRequest(
            f"{what} must have 1 to {CREDENTIAL_CHARACTERS_MAX} printable ASCII "
            f"characters, and no spaces; the one that is given has {len(text)} "
            "characters"
        )
    return text


def _checked_key(text: str) -> str:
    text = text.strip()
    if parse_key(text) is None:
        raise InvalidRequest(
            f"the API key is not complete: it begins with {KEY_PREFIX} and has 67 "
            f"characters; the one that is given has {len(text)}"
        )
    return text
