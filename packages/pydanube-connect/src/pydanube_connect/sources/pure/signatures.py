"""The signatures of webhooks: any HMAC, and those of GitHub and Stripe.  Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from msgspec import Meta

from pydanube.declarations.pure.sections import Section

STRIPE_TOLERANCE_S = 300.0
"""How old or how far in the future the time of Stripe's signature may be."""


class Style(Enum):
    """How a request is signed."""

    HMAC = "hmac"
    """The HMAC of the body is in a header."""
    GITHUB = "github"
    """As GitHub does: ``X-Hub-Signature-256``."""
    STRIPE = "stripe"
    """As Stripe does: ``Stripe-Signature``, with a time."""


class Algorithm(Enum):
    """The hash function of an HMAC."""

    SHA256 = "sha256"
    SHA512 = "sha512"
    SHA1 = "sha1"


class Encoding(Enum):
    """How the HMAC is written in the header."""

    HEX = "hex"
    BASE64 = "base64"


class Signature(Section, frozen=True):
    """The signature that requests must have."""

    style: Annotated[
        Style,
        Meta(
            description="How requests are signed: as GitHub or Stripe do, or with the "
            "HMAC of the body in a header, which the other fields describe."
        ),
    ]
    secret: Annotated[
        str | list[str],
        Meta(description="The secret, or several while it is being replaced."),
    ]
    header: Annotated[str, Meta(description="The header with the HMAC.")] = (
        "X-Signature"
    )
    algorithm: Annotated[Algorithm, Meta(description="The hash function.")] = (
        Algorithm.SHA256
    )
    encoding: Annotated[Encoding, Meta(description="How the HMAC is written.")] = (
        Encoding.HEX
    )
    prefix: Annotated[
        str, Meta(description="The text before the HMAC, such as `sha256=`.")
    ] = ""

    @property
    def secrets(self) -> list[str]:
        """Return all secrets."""
        return [self.secret] if isinstance(self.secret, str) else self.secret


def is_signed(
    signature: Signature, headers: Mapping[str, str], body: bytes, now_s: float
) -> bool:
    """
    Return whether a request is signed with one of the secrets of *signature*.

    *headers* have names in lower case.  *now_s* is in seconds since 1970.
    """
    if signature.style is Style.STRIPE:
        return _is_signed_by_stripe(signature, headers, body, now_s)
    if signature.style is Style.GITHUB:
        signature = Signature(
            style=Style.HMAC,
            secret=signature.secret,
            header="X-Hub-Signature-256",
            prefix="sha256=",
        )
    given = headers.get(signature.header.lower(), "")
    if not given.startswith(signature.prefix):
        return False
    return _matches(
        signature, [given.removeprefix(signature.prefix)], body, signature.encoding
    )


def _is_signed_by_stripe(
    signature: Signature, headers: Mapping[str, str], body: bytes, now_s: float
) -> bool:
    pairs = [
        part.strip().partition("=")
        for part in headers.get("stripe-signature", "").split(",")
    ]
    time = next((value for name, _, value in pairs if name == "t"), "")
    if not time.isdecimal() or abs(now_s - int(time)) > STRIPE_TOLERANCE_S:
        return False
    given = [value for name, _, value in pairs if name == "v1"]
    plain = Signature(style=Style.HMAC, secret=signature.secret)
    return _matches(plain, given, time.encode() + b"." + body, Encoding.HEX)


def _matches(
    signature: Signature, given: list[str], content: bytes, encoding: Encoding
) -> bool:
    is_valid = False
    for secret in signature.secrets:
        digest = hmac.digest(secret.encode(), content, signature.algorithm.value)
        expected = (
            digest.hex()
            if encoding is Encoding.HEX
            else base64.b64encode(digest).decode()
        )
        # All are compared, each in constant time.
        for each in given:
            is_valid |= hmac.compare_digest(each.encode(), expected.encode())
    return is_valid
