"""Key filters: ``*``, ``?`` and literal characters."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_broker.dispatch.key_shared.key_filters import (
    KEY_FILTER_LENGTH_MAX,
    KEY_FILTERS_MAX,
    KeyFilters,
)


@pytest.mark.parametrize(
    ("key_filter", "accepted", "refused"),
    [
        ("order-7", ["order-7"], ["order-77", "order-", "xorder-7", ""]),
        ("order-*", ["order-", "order-7", "order-a/b\nc"], ["order", "Order-1"]),
        ("*-eu", ["-eu", "a-eu", "a-eu-eu"], ["a-eu-us", "eu"]),
        ("a*b*c", ["abc", "a1b2c", "abcxc", "abbcc"], ["acb", "ab", "xabc", "abcx"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("*", ["", "anything"], []),
        ("**x**", ["x", "axb"], ["", "ab"]),
        ("user-??", ["user-01", "user-ß1"], ["user-1", "user-001"]),
        ("*?", ["a", "ab"], [""]),
        ("*a?c*", ["abc", "aacxabc", "xaac"], ["ac", "abd"]),
        ("[ab].+", ["[ab].+"], ["a.+", "[ab]xx"]),
        ("a\\*", ["a\\", "a\\b"], ["a*"]),
    ],
)
def test_filter_accepts_matching_keys(key_filter, accepted, refused):
    filters = KeyFilters([key_filter])
    assert [key for key in accepted if not filters.accept(key.encode())] == []
    assert [key for key in refused if filters.accept(key.encode())] == []


def test_key_may_match_any_of_several_filters():
    filters = KeyFilters(["eu-*", "us-*"])
    assert filters
    assert filters.accept(b"eu-1")
    assert filters.accept(b"us-1")
    assert not filters.accept(b"as-1")


def test_without_filters_every_key_is_accepted():
    filters = KeyFilters([])
    assert not filters
    assert filters.accept(b"anything")


def test_keys_need_not_be_utf8():
    assert KeyFilters(["a?c"]).accept(b"a\xffc")
    assert not KeyFilters(["a?c"]).accept(b"a\xff\xffc")
    assert KeyFilters(["*"]).accept(b"\xff")


def test_filters_do_not_backtrack_exponentially():
    filters = KeyFilters(["*a" * (KEY_FILTER_LENGTH_MAX // 2)])
    assert not filters.accept(b"a" * 100 + b"b")
    assert not filters.accept(b"a" * 10_000 + b"b")
    assert filters.accept(b"ba" * 200)


@pytest.mark.parametrize(
    "filters",
    [[""], ["a" * (KEY_FILTER_LENGTH_MAX + 1)], ["a"] * (KEY_FILTERS_MAX + 1)],
)
def test_invalid_filters_are_refused(filters):
    with pytest.raises(InvalidRequest, match="key filter"):
        KeyFilters(filters)
