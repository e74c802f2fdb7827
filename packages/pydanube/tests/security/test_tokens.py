"""Tokens that are accepted, and the attacks that are not."""

from __future__ import annotations

import base64
import json

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from pydanube.model.errors import InvalidConfig, Unauthenticated
from pydanube.security.principals import Principal
from pydanube.security.tokens import (
    KEYS_BYTES_MAX,
    TokenRules,
    UnknownKey,
    parse_keys,
    verify_token,
)
from support.fakes.secured import AUDIENCE, ISSUER, KEYS, claims, jwks, signed

NOW = 1_700_000_000.0
RULES = TokenRules(issuer=ISSUER, audience=AUDIENCE, leeway_s=10.0)


def verify(token, *, keys=None, rules=RULES, now_s=NOW):
    return verify_token(token, parse_keys(keys or jwks()), rules, now_s)


def valid(**changes):
    return claims(NOW, **changes)


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_of_each_algorithm_is_accepted(algorithm):
    principal = verify(signed(valid(), algorithm))
    assert principal == Principal("alice", "token", ("traders",), NOW + 3610)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_without_a_key_id_is_verified_with_each_key(algorithm):
    assert verify(signed(valid(), algorithm, header={"kid": None})).name == "alice"


@pytest.mark.parametrize("algorithm", KEYS)
def test_keys_in_pem_format_are_accepted(algorithm):
    pem = "".join(each.as_pem(private=False).decode() for each in KEYS.values())
    token = signed(valid(), algorithm, header={"kid": None})
    assert verify(token, keys=pem).name == "alice"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(name):
    for signature in ("", encoded(b"x")):
        head = encoded({"alg": name, "typ": "JWT"})
        with pytest.raises(Unauthenticated, match="not signed with one of"):
            verify(f"{head}.{encoded(valid())}.{signature}")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_secret(algorithm):
    pem = KEYS["RS256"].as_pem(private=False)
    public = json.dumps(KEYS["RS256"].as_dict(private=False)).encode()
    for secret in (pem, pem.strip(), public):
        head = encoded({"alg": algorithm, "kid": "rsa"})
        token = jws.serialize_compact(
            {"alg": algorithm, "kid": "rsa"},
            json.dumps(valid()),
            OctKey.import_key(base64.urlsafe_b64encode(secret).decode()),
            algorithms=[algorithm],
        )
        assert token.startswith(head[:10])
        with pytest.raises(Unauthenticated, match="not signed with one of"):
            verify(token)


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS512", "PS256", "ES256K"])
def test_settings_cannot_allow_other_algorithms(algorithm):
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, algorithms=(algorithm,))
    head = encoded({"alg": algorithm})
    with pytest.raises(Unauthenticated, match="not signed with one of"):
        verify(f"{head}.{encoded(valid())}.{encoded(b'x')}", rules=rules)


def test_an_algorithm_that_is_not_allowed_is_refused():
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, algorithms=("ES256",))
    assert verify(signed(valid(), "ES256"), rules=rules).name == "alice"
    with pytest.raises(Unauthenticated, match="algorithms ES256"):
        verify(signed(valid(), "RS256"), rules=rules)


def test_a_key_of_another_type_verifies_nothing():
    token = signed(valid(), "RS256", header={"kid": "ec"})
    with pytest.raises(UnknownKey):
        verify(token)


def test_a_token_of_another_key_is_refused():
    for other in (
        RSAKey.generate_key(2048, {"kid": "rsa"}, private=True),
        ECKey.generate_key("P-256", {"kid": "ec"}, private=True),
    ):
        algorithm = "RS256" if isinstance(other, RSAKey) else "ES256"
        with pytest.raises(Unauthenticated, match="signature"):
            verify(signed(valid(), algorithm, key=other))


def test_keys_in_the_header_are_not_used():
    own = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
    header = {"jwk": own.as_dict(private=False), "jku": "https://attacker.example"}
    with pytest.raises(Unauthenticated, match=r"signature|neither"):
        verify(signed(valid(), key=own, header=header))


def test_changed_parts_are_refused():
    head, body, signature = signed(valid()).split(".")
    changed = encoded(valid(sub="root"))
    with pytest.raises(Unauthenticated, match="signature"):
        verify(f"{head}.{changed}.{signature}")
    with pytest.raises(Unauthenticated, match="signature"):
        verify(f"{head}.{body}.{signature[:-4]}AAAA")
    with pytest.raises(Unauthenticated):
        verify(f"{head}.{body}.")


def test_extensions_are_refused():
    for header in ({"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"b64": False}):
        head = encoded({"alg": "ES256", "kid": "ec"} | header)
        with pytest.raises(Unauthenticated):
            verify(f"{head}.{encoded(valid())}.{encoded(b'x' * 64)}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 11}, "has expired"),
        ({"exp": None}, "does not expire"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": float("inf")}, "not a time"),
        ({"exp": float("nan")}, "not a time"),
        ({"exp": -1}, "not a time"),
        ({"exp": 10**400}, "not a time"),
        ({"nbf": NOW + 11}, "not valid yet"),
        ({"iat": NOW + 11}, "not valid yet"),
        ({"nbf": []}, "not a time"),
        ({"iss": "https://other.example"}, "issuer of the token is not"),
        ({"iss": None}, "issuer of the token is not"),
        ({"iss": [ISSUER]}, "issuer of the token is not"),
        ({"aud": "other"}, "not for the audience"),
        ({"aud": None}, "not for the audience"),
        ({"aud": ["other", "more"]}, "not for the audience"),
        ({"aud": {AUDIENCE: 1}}, "not for the audience"),
        ({"sub": None}, "not the name of a principal"),
        ({"sub": ""}, "not the name of a principal"),
        ({"sub": 7}, "not the name of a principal"),
        ({"sub": ["alice"]}, "not the name of a principal"),
        ({"sub": "anonymous"}, "not the name of a principal"),
        ({"sub": "bootstrap"}, "not the name of a principal"),
        ({"sub": "a\nb"}, "not the name of a principal"),
        ({"sub": "\ud800"}, "not the name of a principal"),
        ({"sub": "x" * 257}, "not the name of a principal"),
        ({"groups": 7}, "names of groups"),
        ({"groups": {"a": 1}}, "names of groups"),
        ({"groups": [["a"]]}, "names of groups"),
        ({"groups": ["a"] * 257}, "names of groups"),
    ],
)
def test_claims_that_do_not_hold_are_refused(changes, reason):
    with pytest.raises(Unauthenticated, match=reason):
        verify(signed(valid(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 9},
        {"nbf": NOW + 9},
        {"aud": ["other", AUDIENCE]},
        {"groups": None},
        {"groups": "a b"},
        {"groups": []},
    ],
)
def test_claims_that_hold_are_accepted(changes):
    assert verify(signed(valid(**changes))).name == "alice"


def test_settings_name_the_claims():
    rules = TokenRules(
        *(),
        issuer=ISSUER,
        audience=AUDIENCE,
        name_claim="email",
        groups_claim="roles",
    )
    token = signed(valid(email="a@b.example", roles="x y"))
    principal = verify(token, rules=rules)
    assert (principal.name, principal.groups) == ("a@b.example", ("x", "y"))


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "..",
        "a.b.c",
        "." * 100,
        "e30.e30.e30",
        f"{encoded([1])}.{encoded({})}.x",
        f"{encoded({'alg': ['ES256']})}.{encoded({})}.x",
        f"{encoded({'alg': 'ES256', 'kid': 7})}.{encoded({})}.x",
        f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{'A' * 16_000}.x",
        f"{encoded(b'[' * 3000)}.{encoded({})}.x",
        f"{'A' * 16_000}.{encoded({})}.x",
    ],
)
def test_garbage_is_refused(token):
    with pytest.raises(Unauthenticated):
        verify(token)


@pytest.mark.parametrize("payload", ["[]", "7", "x", "", "[" * 5000, '"a"'])
def test_payloads_that_are_no_claims_are_refused(payload):
    token = jws.serialize_compact({"alg": "ES256"}, payload or b"\0", KEYS["ES256"])
    with pytest.raises(Unauthenticated):
        verify(token)


def test_replaced_keys_verify_no_longer():
    token = signed(valid(), "ES256")
    new = ECKey.generate_key("P-256", {"kid": "ec-2"}, private=True)
    assert verify(token, keys=jwks(KEYS["ES256"], new)).name == "alice"
    with pytest.raises(UnknownKey):
        verify(token, keys=jwks(new))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[]",
        '{"keys": []}',
        '{"keys": 7}',
        '{"keys": [7]}',
        '{"keys": [{"kty": "RSA"}]}',
        json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}]}),
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----",
        "[" * 5000,
    ],
)
def test_documents_without_usable_keys_are_refused(text):
    with pytest.raises(InvalidConfig):
        parse_keys(text)


def test_long_documents_are_refused():
    with pytest.raises(InvalidConfig, match="more than"):
        parse_keys(" " * (KEYS_BYTES_MAX + 1))


def test_keys_for_other_uses_are_left_out():
    key = KEYS["ES256"].as_dict(private=False)
    for change in ({"use": "enc"}, {"alg": "ECDH-ES"}):
        with pytest.raises(InvalidConfig, match="no public key for any of"):
            parse_keys(json.dumps({"keys": [key | change]}))
    secret = {"kty": "oct", "k": "AAAA", "kid": "oct"}
    found = parse_keys(json.dumps({"keys": [secret, key]}))
    assert [each.key_type for each in found.keys] == ["EC"]
