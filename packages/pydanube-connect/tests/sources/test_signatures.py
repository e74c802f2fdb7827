"""Tests of the signatures of webhooks."""

import base64
import hmac

import pytest

from pydanube_connect.sources.pure.signatures import (
    Algorithm,
    Encoding,
    Signature,
    Style,
    is_signed,
)

BODY = b'{"a": 1}'
NOW_S = 1_700_000_000.0


def signed(signature, headers, body=BODY):
    return is_signed(signature, headers, body, NOW_S)


def test_github_signs_the_body():
    # The example of GitHub's documentation.
    signature = Signature(style=Style.GITHUB, secret="It's a Secret to Everybody")
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert signed(signature, {"x-hub-signature-256": header}, b"Hello, World!")
    assert not signed(signature, {"x-hub-signature-256": header}, b"Hello, World?")
    assert not signed(signature, {"x-hub-signature-256": header[7:]}, b"Hello, World!")
    assert not signed(signature, {})


@pytest.mark.parametrize(("age_s", "is_valid"), [(0, True), (299, True), (301, False)])
def test_stripe_signs_the_time_and_the_body(age_s, is_valid):
    signature = Signature(style=Style.STRIPE, secret="whsec")
    at = str(int(NOW_S) - age_s)
    digest = hmac.digest(b"whsec", at.encode() + b"." + BODY, "sha256").hex()
    header = f"t={at}, v0=abc, v1={'0' * 64},v1={digest}"
    assert signed(signature, {"stripe-signature": header}) is is_valid
    assert not signed(signature, {"stripe-signature": f"v1={digest}"})
    assert not signed(signature, {"stripe-signature": f"t=x,v1={digest}"})


def test_hmac_may_use_other_headers_algorithms_and_encodings():
    signature = Signature(
        style=Style.HMAC,
        secret=["new", "old"],
        header="X-Sign",
        algorithm=Algorithm.SHA512,
        encoding=Encoding.BASE64,
        prefix="v=",
    )
    for secret, is_valid in ((b"old", True), (b"new", True), (b"other", False)):
        text = base64.b64encode(hmac.digest(secret, BODY, "sha512")).decode()
        assert signed(signature, {"x-sign": f"v={text}"}) is is_valid
    assert not signed(signature, {"x-sign": "v=ä"})
