"""
SCRAM-SHA-256 (RFC 5802, RFC 7677), from the side of the broker.

A client proves that it knows a password without sending it, and the broker proves that
it knows the client's verifier.  A user is the name of API keys, and a password one of
those, which has 256 random bits.  So nobody can guess it with the verifier, whatever
the salt is, and the least number of iterations is enough.  The salt follows from the
name: all keys of a name have the same one, and names that do not exist have one, too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Sequence
from hashlib import pbkdf2_hmac, sha256
from hmac import compare_digest, digest

from pydanube.model.errors import Unauthenticated
from pydanube.model.lazy_dataclasses import dataclass

ITERATIONS = 4096
SALT_BYTES = 16
USER_LENGTH_MAX = 512
_MESSAGE_LENGTH_MAX = 4096


@dataclass(frozen=True, slots=True, repr=False)
class ScramVerifier:
    """The two keys that verify a client, and are no password."""

    stored_key: bytes
    server_key: bytes


def salt_of(user: str) -> bytes:
    """Return the salt of a user, who need not exist."""
    return sha256(f"danube SCRAM {user}".encode()).digest()[:SALT_BYTES]


def make_verifier(password: str, salt: bytes) -> ScramVerifier:
    """Return the verifier of a password."""
    salted = pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    client_key = digest(salted, b"Client Key", "sha256")
    server_key = digest(salted, b"Server Key", "sha256")
    return ScramVerifier(sha256(client_key).digest(), server_key)


@dataclass(frozen=True, slots=True)
class ScramStart:
    """The first message of a client."""

    user: str
    nonce: str
    bare: str
    """The message without its header."""
    header: str


def parse_start(message: bytes) -> ScramStart:
    """
    Return the first message of a client.

    Raises:
        Unauthenticated: It is malformed, or wants what the broker does not know.
    """
    text = _text(message)
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[0] not in {"n", "y"}:
        raise Unauthenticated("SCRAM without channel binding begins with 'n,,'")
    fields = _fields(parts[2])
    if "m" in fields or not fields.get("n") or not fields.get("r"):
        raise Unauthenticated("the first message of SCRAM has a user and a nonce")
    if len(fields["n"]) > USER_LENGTH_MAX:
        raise Unauthenticated(f"a user name has at most {USER_LENGTH_MAX} characters")
    if parts[1] and parts[1] != f"a={fields['n']}":
        raise Unauthenticated(
            "a client cannot act for another user: leave out the authorization "
            "identity, or give the user's own name"
        )
    user = fields["n"].replace("=2C", ",").replace("=3D", "=")
    return ScramStart(user, fields["r"], parts[2], f"{parts[0]},{parts[1]},")


@dataclass(frozen=True, slots=True)
class ScramChallenge:
    """The broker's answer to the first message."""

    start: ScramStart
    nonce: str
    """The nonce of the client, and the broker's own after it."""
    salt: bytes

    @property
    def message(self) -> bytes:
        """The answer as it is sent."""
        salt = b64encode(self.salt).decode()
        return f"r={self.nonce},s={salt},i={ITERATIONS}".encode()

    def verify(
        self, message: bytes, verifiers: Sequence[ScramVerifier]
    ) -> tuple[int, bytes]:
        """
        Return which of *verifiers* the last message of the client proves, and the end.

        Raises:
            Unauthenticated: It proves none.
        """
        text = _text(message)
        unproven, comma, proof = text.rpartition(",p=")
        fields = _fields(unproven)
        header = b64encode(self.start.header.encode()).decode()
        if not comma or fields.get("c") != header or fields.get("r") != self.nonce:
            raise Unauthenticated("the last message of SCRAM does not fit to the first")
        given = _bytes(proof)
        signed = f"{self.start.bare},{self.message.decode()},{unproven}".encode()
        for index, each in enumerate(verifiers):
            signature = digest(each.stored_key, signed, "sha256")
            if len(given) != len(signature):
                continue
            key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
            if compare_digest(sha256(key).digest(), each.stored_key):
                end = b64encode(digest(each.server_key, signed, "sha256"))
                return index, b"v=" + end
        raise Unauthenticated("the user or the password is wrong, or the key expired")


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_LENGTH_MAX:
        raise Unauthenticated(
            f"a message of SCRAM has at most {_MESSAGE_LENGTH_MAX} bytes"
        )
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Unauthenticated("a message of SCRAM is no UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    return {each[:1]: each[2:] for each in text.split(",") if each[1:2] == "="}


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise Unauthenticated("the proof is no base64") from None
