"""The topics that names and patterns select."""

import pytest

from pydanube.client.pure.topic_selection import TopicSelection
from pydanube.model.errors import InvalidRequest

LISTED = [
    "/shop/orders",
    "/shop/returns-part-0",
    "/lab/orders-eu",
]


def test_topics_that_match_one_of_the_patterns_are_selected():
    selection = TopicSelection(["/lab/*", "/shop/ret?rns"])
    assert selection.matching(LISTED) == LISTED[-2:]


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


def test_empty_list_is_refused():
    with pytest.raises(InvalidRequest, match="name at least one"):
        TopicSelection([])
