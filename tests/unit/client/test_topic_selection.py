"""The topics that names and patterns select."""

import pytest

from pydanube.client.topic_selection import TopicSelection
from pydanube.model.errors import InvalidName, InvalidRequest

LISTED = [
    "/shop/orders",
    "/shop/orders-eu",
    "/shop/orders-us-part-0",
    "/shop/orders-us-part-1",
    "/shop/returns-part-0",
    "/lab/orders-eu",
    "/system/orders-eu",
]


@pytest.mark.parametrize(
    ("patterns", "indexes"),
    [
        (["/shop/orders-*"], [1, 2, 3]),
        (["/shop/orders*"], [0, 1, 2, 3]),
        (["/shop/orders-?u"], [1]),
        (["/shop/*"], [0, 1, 2, 3, 4]),
        (["/*/orders-eu"], [1, 5]),
        (["/system/*"], [6]),
        (["/lab/*", "/shop/ret?rns"], [4, 5]),
        # The number of a partition is no part of the topic's name.
        (["/shop/*-part-0"], []),
        (["/shop/rders*"], []),
    ],
)
def test_pattern_matches_names_of_topics(patterns, indexes):
    assert TopicSelection(patterns).matching(LISTED) == [LISTED[n] for n in indexes]


def test_namespaces_to_list_are_those_of_the_patterns():
    selection = TopicSelection(["/shop/a*", "/shop/b*", "/lab/?", "/none/name"])
    assert selection.namespaces() == ["shop", "lab"]
    assert TopicSelection(["/shop/a*", "/l?b/x"]).namespaces() == [None]


def test_names_select_topics_and_their_partitions():
    selection = TopicSelection(["/shop/returns", "/shop/returns", "/lab/x*"])
    assert selection.names == ["/shop/returns"]
    assert selection.includes_by_name("/shop/returns-part-3")
    assert selection.includes("/lab/xy-part-0")
    assert not selection.includes_by_name("/lab/xy-part-0")
    assert not selection.includes("/shop/orders")
    assert str(selection) == "/shop/returns, /lab/x*"


def test_only_one_name_outside_of_a_list_is_a_single_topic():
    assert TopicSelection("/shop/orders").is_single
    assert not TopicSelection("/shop/orders*").is_single
    assert not TopicSelection(["/shop/orders"]).is_single


@pytest.mark.parametrize("text", ["orders-*", "/shop/*/x", "/shop/[ab]*", "/*", "*"])
def test_pattern_that_no_name_can_match_is_refused(text):
    with pytest.raises(InvalidName, match="any text without a slash"):
        TopicSelection(text)


def test_empty_list_is_refused():
    with pytest.raises(InvalidRequest, match="name at least one"):
        TopicSelection([])
