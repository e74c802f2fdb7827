"""Patterns of topic names."""

import pytest

from pydanube.model.errors import InvalidName
from pydanube.model.topic_patterns import TopicPattern

LISTED = [
    "/lab/orders-eu",
    "/shop/orders",
    "/shop/orders-part-2",
    "/shop/orders-part-10",
    "/shop/orders-eu",
    "/shop/orders-us-part-0",
    "/shop/returns-part-0",
    "/system/orders-eu",
]


@pytest.mark.parametrize(
    ("pattern", "indexes"),
    [
        ("/shop/orders-*", [4, 5]),
        ("/shop/orders*", [1, 2, 3, 4, 5]),
        ("/shop/orders-?u", [4]),
        ("/shop/ret?rns", [6]),
        ("/shop/orders", [1, 2, 3]),
        ("/*/orders-eu", [0, 4]),
        ("/system/*", [7]),
        ("/shop/*-part-?", [2, 5, 6]),
        ("/shop/rders*", []),
    ],
)
def test_pattern_selects_topics_with_all_their_partitions_in_order(pattern, indexes):
    assert TopicPattern(pattern).select(LISTED[::-1]) == [LISTED[n] for n in indexes]


@pytest.mark.parametrize(
    "text", ["orders-*", "/shop/*/x", "/shop/[ab]*", "/*", "//*", "*"]
)
def test_pattern_that_no_name_can_match_is_refused(text):
    with pytest.raises(InvalidName, match=r"such as /default/orders-\*"):
        TopicPattern(text)
