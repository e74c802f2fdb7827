"""
The credentials of clients: API keys and tokens, and how headers carry them.

A credential that begins with ``danube_`` is an API key; all others are tokens.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable

from pydanube.model.errors import InvalidRequest, Unauthenticated

CREDENTIAL_CHARACTERS_MAX = 16 * 1024
"""The longest API key or token."""
AUTHORIZATION = b"authorization"
API_KEY = b"x-api-key"
CREDENTIAL_HEADERS = frozenset({AUTHORIZATION, API_KEY})
"""The headers with credentials, in lower case.  No other header tells an identity."""
NAME_CHARACTERS_MAX = 256
"""The longest name of a principal or a group."""
GROUPS_MAX = 256
"""The most groups of a principal."""
BOOTSTRAP = "bootstrap"
"""The principal of the key in the file that the settings name."""
RESERVED_NAMES = frozenset({"", "anonymous", BOOTSTRAP})
"""Names that no principal gets from a certificate, a token or the name of a key."""

_SCHEME = b"bearer "
_BASIC = b"basic "


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """
    Return the credential in *headers*, whose names are in lower case; empty: none.

    Raises:
        Unauthenticated: There are several, or one is malformed.
    """
    found = [each for each in headers if each[0] in CREDENTIAL_HEADERS]
    if not found:
        return ""
    if len(found) > 1:
        raise Unauthenticated(
            "the request has several headers with credentials: send either "
            "'authorization: Bearer ...' or 'x-api-key: ...', once"
        )
    name, value = found[0]
    if name == AUTHORIZATION:
        if value[: len(_BASIC)].lower() == _BASIC:
            value = _password_in(value[len(_BASIC) :])
        elif value[: len(_SCHEME)].lower() == _SCHEME:
            value = value[len(_SCHEME) :]
        else:
            raise Unauthenticated(
                "the authorization header is not of the form 'Bearer ...', with a "
                "token or an API key, or 'Basic ...', with it as the password"
            )
    credential = value.strip().decode("latin-1")
    if not credential:
        raise Unauthenticated(f"the {name.decode()} header has no credentials")
    check_credential(credential)
    return credential


def _password_in(value: bytes) -> bytes:
    """Return the password of a user; the credential says who the user is (RFC 7617)."""
    try:
        _, separator, password = b64decode(value.strip(), validate=True).partition(b":")
    except ValueError:
        separator = password = b""
    if not separator:
        raise Unauthenticated(
            "the authorization header has no user and password in base64"
        )
    return password


def check_credential(credential: str) -> None:
    """
    Raise if *credential* is neither empty nor possibly a token or an API key.

    Raises:
        Unauthenticated: It is too long, or has other than printable ASCII characters.
    """
    if len(credential) > CREDENTIAL_CHARACTERS_MAX:
        raise Unauthenticated(
            f"the credentials have {len(credential)} characters; at most "
            f"{CREDENTIAL_CHARACTERS_MAX} are allowed"
        )
    if not credential.isascii() or not credential.isprintable() or " " in credential:
        raise Unauthenticated(
            "the credentials have characters that no token and no API key has"
        )


def is_principal_name(name: object) -> bool:
    """Return whether *name* may be that of a principal or a group."""
    return (
        isinstance(name, str)
        and name not in RESERVED_NAMES
        and len(name) <= NAME_CHARACTERS_MAX
        and name.isprintable()
        and name == name.strip()
    )


def parse_principal_name(what: str, name: str) -> str:
    """
    Return *name*, which *what* describes.

    Raises:
        InvalidRequest: It cannot be the name of a principal or a group.
    """
    if not is_principal_name(name):
        raise InvalidRequest(
            f"{what} is {name[:NAME_CHARACTERS_MAX]!r}; it has 1 to "
            f"{NAME_CHARACTERS_MAX} printable characters, no spaces around them, and "
            "is neither 'anonymous' nor 'bootstrap'"
        )
    return name
