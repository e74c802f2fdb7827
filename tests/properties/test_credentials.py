"""Anything that strangers send as credentials fails with one kind of error."""

from __future__ import annotations

import base64
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig, Unauthenticated
from pydanube.security.api_keys import make_key, parse_key
from pydanube.security.credentials import credential_of
from pydanube.security.tokens import (
    TokenRules,
    UnknownKey,
    parse_keys,
    verify_token,
)
from support.fakes.secured import AUDIENCE, ISSUER, KEYS, claims, jwks, signed

NOW = 1_700_000_000.0
RULES = TokenRules(issuer=ISSUER, audience=AUDIENCE)
PUBLIC = parse_keys(jwks())

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ALGORITHMS = st.sampled_from([*KEYS, "none", "HS256"]) | VALUES


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def verify(token):
    with suppress(Unauthenticated, UnknownKey):
        return verify_token(token, PUBLIC, RULES, NOW)
    return None


@given(st.text())
def test_no_text_is_a_token(text):
    assert verify(text) is None


@given(st.lists(st.binary(max_size=100), min_size=3, max_size=3))
def test_no_parts_are_a_token(parts):
    assert verify(".".join(map(encoded, parts))) is None


@given(ALGORITHMS, VALUES, VALUES, st.binary(max_size=64))
def test_no_header_is_that_of_a_token(algorithm, key_id, payload, signature):
    header = {"alg": algorithm, "kid": key_id}
    parts = (header, payload, signature)
    assert verify(".".join(map(encoded, parts))) is None


TOKEN = signed(claims(NOW))


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_a_changed_token_is_refused_or_means_the_same(at, character):
    principal = verify(TOKEN[:at] + character + TOKEN[at + 1 :])
    # The last bits of a part in base64 have no meaning.
    assert principal is None or principal == verify(TOKEN)


CLAIMS = st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "groups"])


@given(st.dictionaries(CLAIMS, VALUES, min_size=1))
def test_signed_claims_of_any_type_are_refused_or_name_a_principal(changes):
    principal = verify(signed(claims(NOW, **changes)))
    if principal is not None:
        assert principal.name == changes.get("sub", "alice")
        assert principal.expires_at_s > NOW
        assert all(isinstance(each, str) for each in principal.groups)


@given(
    st.text() | VALUES.map(json.dumps) | VALUES.map(lambda v: json.dumps({"keys": v}))
)
def test_no_text_has_the_keys_of_an_issuer(text):
    with suppress(InvalidConfig):
        assert parse_keys(text).keys


@given(st.binary(min_size=40, max_size=40))
def test_keys_are_parsed_as_they_were_made(random_bytes):
    key = make_key(random_bytes)
    assert parse_key(key.text) == key
    assert credential_of([(b"x-api-key", key.text.encode())]) == key.text


@given(st.text())
def test_no_text_is_an_api_key(text):
    assert parse_key(text) is None


NAMES = st.sampled_from([b"authorization", b"x-api-key", b"host"])


@given(st.lists(st.tuples(NAMES, st.binary() | st.just(b"Bearer x"))))
def test_headers_have_a_credential_or_none_or_are_refused(headers):
    with suppress(Unauthenticated):
        found = credential_of(headers)
        assert found.isascii()
        assert bool(found) == any(name != b"host" for name, _ in headers)
