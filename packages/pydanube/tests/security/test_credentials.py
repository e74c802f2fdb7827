"""Credentials in headers, and the names of principals."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest, Unauthenticated
from pydanube.security.credentials import (
    CREDENTIAL_CHARACTERS_MAX,
    credential_of,
    is_principal_name,
    parse_principal_name,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"authorization", b"Bearer abc"),
        (b"authorization", b"bearer abc"),
        (b"authorization", b"BEARER   abc "),
        (b"authorization", b"Basic dXNlcjphYmM="),
        (b"x-api-key", b"abc"),
        (b"x-api-key", b" abc "),
    ],
)
def test_two_headers_have_credentials(name, value):
    assert credential_of([(b"host", b"x"), (name, value)]) == "abc"


def test_other_headers_have_none():
    names = (b"x-danube-internal-broker", b"x-forwarded-user", b"cookie", b"x-api-keys")
    assert credential_of([(name, b"root") for name in names]) == ""


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Basic YTpi!")],
        [(b"authorization", b"Basic YWI=")],
        [(b"authorization", b"Basic YTo=")],
        [(b"authorization", b"Digest YTpi")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"abc")],
        [(b"authorization", b"")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"a b")],
        [(b"x-api-key", b"a\0b")],
        [(b"x-api-key", b"a\xe9")],
        [(b"x-api-key", b"a" * (CREDENTIAL_CHARACTERS_MAX + 1))],
        [(b"x-api-key", b"a"), (b"x-api-key", b"a")],
        [(b"x-api-key", b"a"), (b"authorization", b"Bearer a")],
    ],
)
def test_malformed_and_several_credentials_are_refused(headers):
    with pytest.raises(Unauthenticated) as refused:
        credential_of(headers)
    assert "YTpi" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["a", "spiffe://a/b", "CN with spaces", "ä", "x" * 256]
)
def test_names_of_principals(name):
    assert is_principal_name(name)
    assert parse_principal_name("the principal", name) == name


@pytest.mark.parametrize(
    "name", ["", "anonymous", "bootstrap", " a", "a ", "a\n", "x" * 257, "\ud800"]
)
def test_other_texts_are_no_names_of_principals(name):
    assert not is_principal_name(name)
    with pytest.raises(InvalidRequest, match="the principal is"):
        parse_principal_name("the principal", name)
