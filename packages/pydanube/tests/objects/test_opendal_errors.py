"""The meaning of OpenDAL's errors; their texts are those of version 0.47.12."""

import pytest

from pydanube.objects.opendal_errors import FailureKind, failure_of

SECRET = "hushhush"

REFUSED = f"""PermissionDenied (permanent) at write => S3Error {{ \
code: "SignatureDoesNotMatch", message: "The signature does not match the key \
{SECRET}", resource: "AWS4-HMAC-SHA256 {SECRET}", request_id: "7ge" }}

Context:
   service_operation: PutObject
   uri: http://127.0.0.1:36543/bucket/a?X-Amz-Signature={SECRET}
   response: Parts {{ status: 403, version: HTTP/1.1, headers: {{"x": "{SECRET}"}} }}
   service: s3
   path: a/one
"""

AZURE = f"""PermissionDenied (permanent) at read => AzblobError {{ code: \
"AuthenticationFailed", message: "Server failed to authenticate the request.\\nTime", \
authentication_error_detail: "Signature did not match. String to sign: {SECRET}" }}

Context:
   uri: https://x.blob.core.windows.net/c/a?sv=2020&sig={SECRET}
   response: Parts {{ status: 403, version: HTTP/1.1, headers: {{}} }}
"""

AWAY = f"""Unexpected (temporary) at read => send http request

Context:
   url: http://127.0.0.1:36543/bucket/a?sig={SECRET}
   called: reqwest::send

Source:
   error sending request for url (http://h/a?sig={SECRET}): tcp connect error: \
Connection refused (os error 111)

Backtrace:
   0: <unknown>
"""

MISSING = """ConfigInvalid (permanent) at read => S3Error { code: "NoSuchBucket", \
message: "The specified bucket does not exist", resource: "", request_id: "1" }

Context:
   response: Parts { status: 404, version: HTTP/1.1, headers: {} }
"""

RAW = f"""Unexpected (permanent) at read => <Error><StringToSign>{SECRET}</StringToSign>

Context:
   response: Parts {{ status: 500, version: HTTP/1.1, headers: {{}} }}
"""

TIMEOUT = """Unexpected (persistent) at read => io operation timeout reached

Context:
   timeout: 2
"""

HEAD = """NotFound (permanent) at stat

Context:
   response: Parts { status: 404, version: HTTP/1.1, headers: {} }
"""

NO_RANGE = """Unexpected (permanent) at read

Context:
   response: Parts { status: 416, version: HTTP/1.1, headers: {} }
"""

NO_UPLOAD = """NotFound (permanent) at write => S3Error { code: "NoSuchUpload", \
message: "The upload does not exist", resource: "", request_id: "1" }

Context:
   response: Parts { status: 404, version: HTTP/1.1, headers: {} }
"""

PASSWORD = """Unexpected (temporary) at read => authentication failed

Context:
   service: redis

Source:
   Password authentication failed - AuthenticationFailed
"""

NO_CREDENTIAL = """Unexpected (permanent) at List::next => signing http request

Context:
   service: s3

Source:
   failed to load signing credential
"""

SHORT = """Unexpected (permanent) at  => reader got too little data

Context:
   expect: 100
   actual: 2
"""


@pytest.mark.parametrize(
    ("name", "text", "kind", "message"),
    [
        (
            "PermissionDenied",
            REFUSED,
            FailureKind.REFUSED,
            (
                "SignatureDoesNotMatch: The signature does not match the key *** "
                "(HTTP 403)"
            ),
        ),
        (
            "PermissionDenied",
            AZURE,
            FailureKind.REFUSED,
            (
                "AuthenticationFailed: Server failed to authenticate the request. "
                "(HTTP 403)"
            ),
        ),
        (
            "Unexpected",
            AWAY,
            FailureKind.UNREACHABLE,
            (
                "send http request: error sending request for url (http://h/a): tcp "
                "connect error: Connection refused (os error 111)"
            ),
        ),
        (
            "ConfigInvalid",
            MISSING,
            FailureKind.NO_STORE,
            "NoSuchBucket: The specified bucket does not exist (HTTP 404)",
        ),
        ("Unexpected", RAW, FailureKind.UNREACHABLE, "HTTP 500"),
        (
            "Unexpected",
            TIMEOUT,
            FailureKind.TIMEOUT,
            "io operation timeout reached",
        ),
        ("NotFound", HEAD, FailureKind.ABSENT, "HTTP 404"),
        (
            "Unexpected",
            PASSWORD,
            FailureKind.REFUSED,
            (
                "authentication failed: Password authentication failed - "
                "AuthenticationFailed"
            ),
        ),
        (
            "Unexpected",
            NO_CREDENTIAL,
            FailureKind.REFUSED,
            "signing http request: failed to load signing credential",
        ),
        ("Unexpected", SHORT, FailureKind.RANGE, "reader got too little data"),
        ("Unexpected", NO_RANGE, FailureKind.RANGE, "HTTP 416"),
        (
            "NotFound",
            NO_UPLOAD,
            FailureKind.UNREACHABLE,
            "NoSuchUpload: The upload does not exist (HTTP 404)",
        ),
        ("Conflict", "", FailureKind.CONTENTION, "Conflict"),
        ("ConditionNotMatch", "", FailureKind.EXISTS, "ConditionNotMatch"),
    ],
)
def test_an_error_has_a_meaning_and_no_secrets(name, text, kind, message):
    failure = failure_of(type(name, (Exception,), {})(text), [SECRET])
    assert (failure.kind, failure.message) == (kind, message)
    assert str(failure) == f"{message}; {kind.value}"


def test_long_messages_are_cut():
    failure = failure_of(Exception("X (temporary) at y => " + "long " * 1000))
    assert len(failure.message) == 300
