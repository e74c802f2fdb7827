"""ApiVersions and SASL: what is served, and who the client is."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import BrokerError
from pydanube.security.scram import ScramChallenge, parse_start, salt_of
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.wire.apis import VERSIONS, Api, ErrorCode

if TYPE_CHECKING:
    from pydanube_kafka.connection import KafkaConnection

SCRAM = "SCRAM-SHA-256"
MECHANISMS = ("PLAIN", SCRAM, "OAUTHBEARER")
NONCE_BYTES = 24
_BEARER = "auth=Bearer "


async def api_versions(call: Call) -> Awaitable[Any]:
    """Answer with the requests and versions that are served."""
    answers = call.answers
    is_unknown = call.body is None
    return Done(
        answers.ApiVersionsResponse(
            error_code=ErrorCode.unsupported_version if is_unknown else ErrorCode.none,
            api_keys=tuple(
                answers.ApiVersion(api_key=api, min_version=first, max_version=last)
                for api, (first, last) in VERSIONS.items()
            ),
            throttle_time=call.throttle_time,
        )
    )


async def sasl_handshake(call: Call) -> Awaitable[Any]:
    """Take the mechanism that the client has chosen, if it is one of ours."""
    is_known = call.body.mechanism in MECHANISMS
    call.connection.scram = None
    call.connection.mechanism = call.body.mechanism if is_known else ""
    code = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
    return Done(
        call.answers.SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS)
    )


async def sasl_authenticate(call: Call) -> Awaitable[Any]:
    """Authenticate the client by its API key or token."""
    connection, answers = call.connection, call.answers
    answer = b""
    try:
        if connection.mechanism == SCRAM:
            answer = _next_of_scram(connection, call.body.auth_bytes)
        else:
            connection.authenticate(
                _credential_of(connection.mechanism, call.body.auth_bytes)
            )
    except (BrokerError, ValueError) as error:
        return Done(
            answers.SaslAuthenticateResponse(
                error_code=ErrorCode.sasl_authentication_failed,
                error_message=str(error),
                auth_bytes=b"",
            )
        )
    return Done(
        answers.SaslAuthenticateResponse(
            error_code=ErrorCode.none, error_message=None, auth_bytes=answer
        )
    )


def _next_of_scram(connection: KafkaConnection, message: bytes) -> bytes:
    """Return the answer to the first message of SCRAM, or to the last one."""
    challenge, connection.scram = connection.scram, None
    if challenge is not None:
        return connection.authenticate_scram(challenge, message)
    start = parse_start(message)
    nonce = start.nonce + secrets.token_urlsafe(NONCE_BYTES)
    connection.scram = ScramChallenge(start, nonce, salt_of(start.user))
    return connection.scram.message


def _credential_of(mechanism: str, data: bytes) -> str:
    """Return the API key or token in the client's first message of SASL."""
    text = data.decode()
    if mechanism == "PLAIN":
        # RFC 4616: authorization identity, user, password.
        parts = text.split("\0")
        if len(parts) != 3:
            raise ValueError("expected a user and a password")
        if parts[0] not in {"", parts[1]}:
            raise ValueError("a client cannot act for another user")
        return parts[2]
    if mechanism == "OAUTHBEARER":
        # RFC 7628: fields between control characters.
        for field in text.split("\x01"):
            if field.startswith(_BEARER):
                return field.removeprefix(_BEARER)
        raise ValueError("expected a bearer token")
    raise ValueError(f"choose a mechanism first: {', '.join(MECHANISMS)}")


AUTHENTICATING: dict[Api, Handler] = {
    Api.API_VERSIONS: api_versions,
    Api.SASL_HANDSHAKE: sasl_handshake,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
}
