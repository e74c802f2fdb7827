"""
The verification of tokens: JSON Web Tokens that an issuer has signed.

A token is accepted if one of the issuer's keys has signed it with an algorithm of a
fixed list, all of which have a public and a private key, and if its claims name the
issuer, the audience, a time until which it is valid, and a principal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from pydanube.model.errors import InvalidConfig, Unauthenticated
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.credentials import GROUPS_MAX, is_principal_name
from pydanube.security.principals import Principal

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""The algorithms that may be accepted.  None of them has a secret that verifiers know,
so a public key cannot be taken for one."""
KEYS_MAX = 100
"""The most keys of an issuer."""
KEYS_BYTES_MAX = 1024 * 1024
"""The longest text with the keys of an issuer."""

_KEY_TYPES = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
_CURVES = {"ES256": "P-256", "EdDSA": "Ed25519"}


class UnknownKey(Exception):
    """No known key of the issuer has the id that a token names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The requirements for tokens."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ALGORITHMS
    name_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_s: float = 30.0


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """The public keys of an issuer."""

    keys: tuple[Key, ...]

    def candidates(self, key_id: str | None, algorithm: str) -> list[Key]:
        """Return the keys that may have signed a token with this header."""
        return [
            each
            for each in self.keys
            if _suits(each, algorithm) and (key_id is None or each.kid == key_id)
        ]


def parse_keys(text: str) -> IssuerKeys:
    """
    Return the public keys in *text*, a JWKS or one or several keys in PEM format.

    Secrets, and keys that no algorithm of the list uses, are left out.

    Raises:
        InvalidConfig: It is neither, or has no key to verify with.
    """
    if len(text) > KEYS_BYTES_MAX:
        raise InvalidConfig(f"the keys have more than {KEYS_BYTES_MAX} characters")
    try:
        found = _from_pem(text) if "-----BEGIN" in text else _from_jwks(text)
    except Exception as error:  # noqa: BLE001  # The library raises many kinds.
        raise InvalidConfig(
            "expected the public keys of an issuer, as a JWKS or in PEM format "
            f"({type(error).__name__})"
        ) from None
    suiting = [each for each in found if any(_suits(each, a) for a in ALGORITHMS)]
    if not suiting:
        raise InvalidConfig(
            f"the issuer has no public key for any of {', '.join(ALGORITHMS)}"
        )
    return IssuerKeys(tuple(suiting[:KEYS_MAX]))


def verify_token(
    token: str, keys: IssuerKeys, rules: TokenRules, now_s: float
) -> Principal:
    """
    Return the principal that *token* names, at the Unix time *now_s*.

    Raises:
        UnknownKey: The token names a key that is not one of *keys*.
        Unauthenticated: The token is malformed, not signed by the issuer, for another
            audience, not valid at this time, or names no principal.
    """
    header = _header_of(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in rules.algorithms or algorithm not in ALGORITHMS:
        raise Unauthenticated(
            "the token is not signed with one of the algorithms "
            f"{', '.join(rules.algorithms)}"
        )
    if key_id is not None and not isinstance(key_id, str):
        raise Unauthenticated("the token is malformed")
    candidates = keys.candidates(key_id, algorithm)
    if not candidates:
        raise UnknownKey
    for key in candidates:
        payload = _payload_of(token, key, algorithm)
        if payload is not None:
            return _principal_of(_object_in(payload), rules, now_s)
    raise Unauthenticated("the signature of the token is not the issuer's")


def _payload_of(token: str, key: Key, algorithm: str) -> bytes | None:
    """Return the payload of *token* if *key* has signed it, otherwise None."""
    from joserfc import jws  # noqa: PLC0415  # An extra.

    try:
        with catch_warnings():
            # The library prefers a newer name of EdDSA, which issuers do not use yet.
            simplefilter("ignore")
            return jws.deserialize_compact(token, key, algorithms=[algorithm]).payload
    except Exception:  # noqa: BLE001  # The library raises many kinds.
        return None


def _header_of(token: str) -> dict[str, Any]:
    from joserfc import jws  # noqa: PLC0415  # An extra.

    try:
        header = jws.extract_compact(token.encode()).headers()
    except Exception:  # noqa: BLE001  # The library raises many kinds.
        raise Unauthenticated(
            "the credentials are neither an API key nor a token"
        ) from None
    if "crit" in header or header.get("b64", True) is not True:
        raise Unauthenticated("the token needs extensions that this broker lacks")
    return dict(header)


def _object_in(payload: bytes) -> dict[str, Any]:
    import json  # noqa: PLC0415  # Only with tokens.

    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise Unauthenticated("the token is malformed: it has no claims")
    return claims


def _principal_of(claims: dict[str, Any], rules: TokenRules, now_s: float) -> Principal:
    """
    Return the principal that *claims* name, which the issuer has signed.

    Raises:
        Unauthenticated: A claim is missing, or not as *rules* say.
    """
    if claims.get("iss") != rules.issuer:
        raise Unauthenticated(f"the issuer of the token is not {rules.issuer!r}")
    audiences = claims.get("aud")
    listed = audiences if isinstance(audiences, list) else [audiences]
    if rules.audience not in listed:
        raise Unauthenticated(f"the token is not for the audience {rules.audience!r}")
    expires_at_s = _time_in(claims, "exp")
    if expires_at_s is None:
        raise Unauthenticated("the token does not expire: it needs the claim exp")
    if now_s >= expires_at_s + rules.leeway_s:
        raise Unauthenticated("the token has expired: get a new one")
    for claim in ("nbf", "iat"):
        begins_at_s = _time_in(claims, claim)
        if begins_at_s is not None and now_s < begins_at_s - rules.leeway_s:
            raise Unauthenticated(
                f"the token is not valid yet, by its claim {claim}: compare the clocks "
                "of the issuer and the broker"
            )
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not is_principal_name(name):
        raise Unauthenticated(
            f"the claim {rules.name_claim} of the token is not the name of a principal"
        )
    groups = _groups_in(claims.get(rules.groups_claim), rules)
    return Principal(name, "token", groups, expires_at_s + rules.leeway_s)


def _groups_in(found: object, rules: TokenRules) -> tuple[str, ...]:
    if found is None:
        return ()
    groups = found.split() if isinstance(found, str) else found
    if (
        not isinstance(groups, list)
        or len(groups) > GROUPS_MAX
        or not all(map(is_principal_name, groups))
    ):
        raise Unauthenticated(
            f"the claim {rules.groups_claim} of the token is not a list of at most "
            f"{GROUPS_MAX} names of groups"
        )
    return tuple(groups)


def _time_in(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated(f"the claim {name} of the token is not a time")
    if not 0 <= value < 2**53:
        raise Unauthenticated(f"the claim {name} of the token is not a time")
    return float(value)


# Keys.


def _suits(key: Key, algorithm: str) -> bool:
    """Return whether *key* may verify signatures of *algorithm*."""
    found = key.as_dict(private=False)
    return (
        key.key_type == _KEY_TYPES[algorithm]
        and found.get("crv") == _CURVES.get(algorithm)
        and found.get("use") in (None, "sig")
        and found.get("alg") in (None, algorithm)
    )


def _from_jwks(text: str) -> list[Key]:
    import json  # noqa: PLC0415  # Only with tokens.

    from joserfc.jwk import import_key  # noqa: PLC0415  # An extra.

    document = json.loads(text)
    listed: Iterable[dict[str, Any]] = document["keys"]
    found = []
    for each in listed:
        if each.get("kty") not in _KEY_TYPES.values():
            continue
        try:
            found.append(import_key(each))
        except Exception:  # noqa: BLE001, S112  # One that this library does not know.
            continue
    return found


def _from_pem(text: str) -> list[Key]:
    from joserfc.jwk import import_key  # noqa: PLC0415  # An extra.

    end = "-----END PUBLIC KEY-----"
    blocks = [f"{each}{end}\n" for each in text.split(end)[:-1]]
    found = []
    for block in blocks:
        for kind in _KEY_TYPES.values():
            try:
                found.append(import_key(block.strip() + "\n", kind))  # type: ignore[call-overload]
            except Exception:  # noqa: BLE001, S112  # A key of another type.
                continue
            break
    return found
