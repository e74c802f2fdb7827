"""
API keys: their text, and the part of it that brokers store.

A key is ``danube_`` and an id, an underscore, and a secret.  The id is public: it finds
the stored hash of the key, with which the hash of the presented key is compared in
constant time.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import compare_digest

from pydanube.model.lazy_dataclasses import dataclass

KEY_PREFIX = "danube_"
"""The beginning of each key, which no token has."""
ID_BYTES = 8
SECRET_BYTES = 32

_KEY = re.compile(r"danube_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, repr=False)
class ApiKey:
    """An API key, which only its owner knows."""

    key_id: str
    text: str

    def __repr__(self) -> str:
        return f"ApiKey({self.key_id!r}, ***)"

    @property
    def hash(self) -> str:
        """The SHA-256 of the key, which brokers store."""
        return sha256(self.text.encode()).hexdigest()

    def has_hash(self, stored: str) -> bool:
        """Return whether the key has the hash *stored*, in constant time."""
        return compare_digest(self.hash.encode(), stored.encode())


def make_key(random_bytes: bytes) -> ApiKey:
    """Return a key of ``ID_BYTES`` + ``SECRET_BYTES`` random bytes."""
    assert len(random_bytes) == ID_BYTES + SECRET_BYTES
    key_id = random_bytes[:ID_BYTES].hex()
    secret = urlsafe_b64encode(random_bytes[ID_BYTES:]).rstrip(b"=").decode()
    return ApiKey(key_id, f"{KEY_PREFIX}{key_id}_{secret}")


def parse_key(text: str) -> ApiKey | None:
    """Return the key that *text* is; None: it is none."""
    found = _KEY.fullmatch(text)
    return None if found is None else ApiKey(found[1], text)
