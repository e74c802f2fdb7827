"""Records of Kafka survive the way into messages and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.kafka_records import (
    HEADERS,
    HEADERS_MAX,
    TOMBSTONE,
    attributes_of,
    headers_of,
)

NAMES = st.sampled_from(["a", "b", TOMBSTONE, HEADERS, "\u00e9"])
VALUES = st.none() | st.binary(max_size=4)


@given(VALUES, st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_headers_come_back_as_they_were(value, headers):
    attributes = attributes_of(value, headers)
    assert (TOMBSTONE in attributes) is (value is None)
    assert list(headers_of(attributes)) == headers


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '[["a", "?"]]', "[[1, null]]", r'[["\ud800", null]]'],
)
def test_what_others_wrote_is_no_list_of_headers(text):
    assert list(headers_of({"a": "1", HEADERS: text})) == [("a", b"1")]


def test_headers_are_limited():
    headers = [("a", b"1")] * (HEADERS_MAX + 1)
    assert list(headers_of(attributes_of(b"", headers))) == [("a", b"1")]
