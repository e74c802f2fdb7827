"""Templates name messages by topic and key."""

from types import SimpleNamespace

import pytest

from pydanube_connect.sinks.templates import render


@pytest.mark.parametrize(
    ("template", "key", "name"),
    [
        ("fixed", b"k", "fixed"),
        ("{topic}.{key}", b"k", "orders.k"),
        ("{key}/{key}", b"k", "k/k"),
        ("a.{key}", None, "a."),
        ("{key}", b"\xff", "\ufffd"),
    ],
)
def test_names(template, key, name):
    message = SimpleNamespace(topic="/default/orders", key_bytes=key)
    assert render(template, message) == name
