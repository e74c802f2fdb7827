"""The texts of API keys."""

from __future__ import annotations

import inspect
from hashlib import sha256

import pytest

from pydanube.security import api_keys
from pydanube.security.api_keys import make_key, parse_key

RANDOM = bytes(range(40))


def test_a_key_has_an_id_and_a_secret_of_32_bytes():
    key = make_key(RANDOM)
    prefix, key_id, secret = key.text.split("_", 2)
    assert (prefix, key_id) == ("danube", "0001020304050607")
    assert len(secret) == 43
    assert key.hash == sha256(key.text.encode()).hexdigest()
    assert parse_key(key.text) == key


def test_other_random_bytes_are_another_key():
    texts = {make_key(bytes([n]) + RANDOM[1:]).text for n in range(256)}
    texts |= {make_key(RANDOM[:-1] + bytes([n])).text for n in range(256)}
    # Both have the key of RANDOM.
    assert len(texts) == 511


@pytest.mark.parametrize(
    "text",
    [
        "",
        "danube_",
        "danube_0001020304050607",
        f"danube_0001020304050607_{'a' * 42}",
        f"danube_0001020304050607_{'a' * 44}",
        f"danube_0001020304050607_{'a' * 42}=",
        f"danube_0001020304050607_{'a' * 43}\n",
        f"danube_000102030405060X_{'a' * 43}",
        f"DANUBE_0001020304050607_{'a' * 43}",
        f" danube_0001020304050607_{'a' * 43}",
    ],
)
def test_other_texts_are_no_keys(text):
    assert parse_key(text) is None


def test_a_key_does_not_show_its_secret():
    key = make_key(RANDOM)
    assert key.text.split("_", 2)[2] not in f"{key!r} {key}"
    assert key.key_id in repr(key)


def test_hashes_are_compared_in_constant_time():
    key = make_key(RANDOM)
    assert key.has_hash(key.hash)
    assert not key.has_hash(make_key(RANDOM[::-1]).hash)
    assert not key.has_hash("")
    # By construction: no other comparison of hashes or texts is in the file.
    source = inspect.getsource(api_keys)
    assert "compare_digest(self.hash.encode(), stored.encode())" in source
    assert "==" not in source.replace("len(random_bytes) ==", "")
