"""Payloads are shown as what they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_console.pure.payloads import is_match, show_payload


@pytest.mark.parametrize(
    ("payload", "value", "form", "text"),
    [
        (b'{"a":1}', None, "json", '{\n  "a": 1\n}'),
        (b"{broken", None, "text", "{broken"),
        ("Grüße".encode(), None, "text", "Grüße"),
        (b"\xff\x00", None, "hex", "00000000  ff 00" + " " * 42 + "  .."),
        (b"\x00", None, "hex", "00000000  00" + " " * 45 + "  ."),
        (b"\x02", {"a": 1}, "json", '{\n  "a": 1\n}'),
    ],
)
def test_form_follows_from_the_content(payload, value, form, text):
    shown = show_payload(payload, value)
    assert (shown.form, shown.text) == (form, text)
    assert not shown.is_truncated


@given(st.binary(max_size=200), st.integers(1, 100))
def test_long_payloads_are_truncated(payload, bytes_max):
    shown = show_payload(payload, bytes_max=bytes_max)
    assert shown.is_truncated == (len(payload) > bytes_max)


def test_deep_json_is_shown_as_text():
    payload = b"[" * 2000 + b"]" * 2000
    assert show_payload(payload, bytes_max=10_000).form in {"text", "json"}


def test_search_ignores_case_and_reads_key_and_attributes():
    assert is_match(b"order", b"ORDER 7", None, {})
    assert is_match(b"user-7", b"", b"User-7", {})
    assert is_match(b"source=web", b"", None, {"Source": "Web"})
    assert not is_match(b"x", b"a", b"b", {"c": "d"})
