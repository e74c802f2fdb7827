"""What clients send for SASL."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pydanube_kafka.authenticating import sasl_authenticate


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        (b"\0alice\0secret", ["secret"]),
        (b"alice\0alice\0secret", ["secret"]),
        (b"admin\0alice\0secret", []),
        (b"alice\0secret", []),
        (b"\xff\0\0", []),
    ],
)
async def test_client_cannot_act_for_another_user(message, taken):
    credentials = []
    connection = SimpleNamespace(mechanism="PLAIN", authenticate=credentials.append)
    call = SimpleNamespace(
        connection=connection,
        body=SimpleNamespace(auth_bytes=message),
        answers=SimpleNamespace(SaslAuthenticateResponse=SimpleNamespace),
    )
    answer = await (await sasl_authenticate(call))
    assert credentials == taken
    assert bool(answer.error_code) == (not taken)
