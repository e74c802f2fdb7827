"""Tests of messages as entries of requests to AWS."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.sinks.pure.aws_entries import (
    Entry,
    NoEntry,
    attributes_of,
    ordering_of,
    partition_key_of,
    requests_of,
    text_of,
)


def message_of(payload=b"x", key=None, **attributes):
    return SimpleNamespace(
        payload=payload,
        key_bytes=key,
        attributes=attributes,
        topic="/default/orders",
        id=("/default/orders", 7),
        offset=7,
    )


@given(
    st.lists(st.integers(1, 60), max_size=30), st.integers(1, 10), st.integers(1, 100)
)
def test_requests_have_all_entries_within_their_limits(sizes, count_max, bytes_max):
    entries = [Entry(number, {}, size) for number, size in enumerate(sizes)]
    found = list(requests_of(entries, count_max=count_max, bytes_max=bytes_max))
    assert [each for request in found for each in request] == entries
    for request in found:
        assert 1 <= len(request) <= count_max
        total = sum(each.byte_count for each in request)
        assert len(request) == 1 or total <= bytes_max


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_a_request_has_one_entry_of_each_group(groups):
    entries = [
        Entry(number, {"MessageGroupId": group}, 1)
        for number, group in enumerate(groups)
    ]
    found = list(requests_of(entries, count_max=10, bytes_max=100))
    assert [each for request in found for each in request] == entries
    for request in found:
        named = [each.fields["MessageGroupId"] for each in request]
        assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"\0", b"a\x0b", "\uffff".encode(), b"x" * (2**20 + 1)]
)
def test_payloads_that_are_no_text_are_refused(payload):
    with pytest.raises(NoEntry, match="the payload"):
        text_of(message_of(payload))


def test_texts_with_line_breaks_and_emoji_are_entries():
    assert text_of(message_of("\t\r\n\U0001f600".encode())) == "\t\r\n\U0001f600"


@pytest.mark.parametrize("name", ["AWS.x", "amazon.x", ".a", "a.", "a..b", "a b", ""])
def test_names_that_aws_does_not_take_are_refused(name):
    with pytest.raises(NoEntry, match="the name of an attribute"):
        attributes_of(message_of(**{name: "x"}))


def test_attributes_are_few_and_have_values():
    with pytest.raises(NoEntry, match="11 attributes"):
        attributes_of(message_of(**{f"a{number}": "x" for number in range(11)}))
    with pytest.raises(NoEntry, match="empty or no text"):
        attributes_of(message_of(a=""))
    assert attributes_of(message_of(a="x", awsome="y")).keys() == {"a", "awsome"}


def test_a_group_is_the_key_or_the_topic():
    first = ordering_of(message_of(key=b"k"))
    assert first["MessageGroupId"] == "k"
    assert first == ordering_of(message_of(b"other", key=b"k"))
    assert ordering_of(message_of())["MessageGroupId"] == "orders"
    for key in (b"", b"a b", b"k" * 129, "ü".encode()):
        with pytest.raises(NoEntry, match="the key"):
            ordering_of(message_of(key=key))


@given(st.none() | st.binary(max_size=400))
def test_every_key_has_a_partition(key):
    found = partition_key_of(message_of(key=key))
    assert 1 <= len(found) <= 256
    assert found == partition_key_of(message_of(b"other", key=key))
