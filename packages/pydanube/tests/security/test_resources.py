"""Resources and their patterns."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidName
from pydanube.security.resources import CLUSTER, Resource, ResourcePattern

TOPIC = Resource.parse("/shop/orders")


@pytest.mark.parametrize(
    "text", ["cluster", "/shop", "/shop/orders", "/shop/a.b-part-3", "subject:orders"]
)
def test_resource_is_written_as_it_is_parsed(text):
    assert str(Resource.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shop",
        "/",
        "//",
        "/shop/",
        "/shop//orders",
        "/a/../b",
        "/shop/..",
        "/shop/.hidden",
        "/shop/orders/more",
        "/shop/orders\n",
        "/shop/orders\x00",
        "/shop/ord ers",
        "/shop%2forders",
        "subject:",
        "subject:a/b",
        "Cluster",
        "topic:/a/b",
    ],
)
def test_malformed_text_is_neither_a_resource_nor_a_pattern(text):
    with pytest.raises(InvalidName):
        Resource.parse(text)
    with pytest.raises(InvalidName):
        ResourcePattern(text)


@pytest.mark.parametrize(
    "text",
    [
        "/\uff41dmin",
        "/shop/\ufb01le",
        "/shop/e\u0301",
        "subject:\u2160",
        "/shop/orders\u200b",
        "/shop/\u202eorders",
        "\uff0a",
        "/shop\u2215orders",
        "/shop/\u2024\u2024",
    ],
)
def test_pattern_that_looks_like_another_is_refused(text):
    with pytest.raises(InvalidName):
        ResourcePattern(text)


def test_letters_of_other_scripts_are_different_names():
    latin, cyrillic = ResourcePattern("/a/*"), Resource.parse("/\u0430/orders")
    assert not latin.matches(cyrillic)
    assert ResourcePattern("/\u0430/*").matches(cyrillic)


@pytest.mark.parametrize(
    ("pattern", "resource", "is_match"),
    [
        ("*", "cluster", True),
        ("*", "/system/audit", True),
        ("cluster", "cluster", True),
        ("cluster", "/cluster", False),
        ("/shop", "/shop", True),
        ("/shop", "/shop/orders", False),
        ("/shop", "/shopping", False),
        ("/shop/orders", "/shop/orders", True),
        ("/shop/orders", "/shop/orders2", False),
        ("/shop/orders", "/shop/Orders", False),
        ("/shop/orders", "/shop/orders-part-2", True),
        ("/shop/orders-part-2", "/shop/orders-part-2", True),
        ("/shop/orders-part-2", "/shop/orders-part-3", False),
        ("/shop/*", "/shop/orders", True),
        ("/shop/*", "/shop", False),
        ("/shop/ord*", "/shop/orders", True),
        ("/shop/order?", "/shop/orders", True),
        ("/shop/order?", "/shop/order", False),
        ("/shop*/*", "/shop-eu/orders", True),
        ("/*/*", "/shop/orders", True),
        ("/*/*", "/system/audit", False),
        ("/s*/audit", "/system/audit", False),
        ("/syste?/audit", "/system/audit", False),
        ("/*", "/system", False),
        ("/system/*", "/system/audit", True),
        ("subject:ord*", "subject:orders", True),
        ("subject:*", "/shop/orders", False),
        ("/shop/[o]rders", "/shop/orders", None),
    ],
)
def test_pattern_matches(pattern, resource, is_match):
    if is_match is None:
        with pytest.raises(InvalidName):
            ResourcePattern(pattern)
    else:
        found = ResourcePattern(pattern).matches(Resource.parse(resource))
        assert found is is_match


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("*", "*", True),
        ("*", "/system/audit", True),
        ("/*/*", "*", False),
        ("/*/*", "/shop/*", True),
        ("/*/*", "/system/*", False),
        ("/shop/*", "/shop/orders", True),
        ("/shop/*", "/shop/*-eu", True),
        ("/shop/*-eu", "/shop/*", False),
        ("/shop/a*", "/shop/?", False),
        ("/shop/?", "/shop/*", False),
        ("/shop/orders", "/shop/*", False),
        ("/shop/*", "/shopping/*", False),
        ("/shop/*", "/shop", False),
        ("/shop", "/shop/*", False),
        ("/shop/x-pa*", "/shop/x-part-0", False),
        ("/shop/*", "/shop/x-part-0", True),
        ("subject:a*", "subject:ab*", True),
        ("subject:a*", "subject:*", False),
        ("cluster", "cluster", True),
        ("cluster", "*", False),
    ],
)
def test_pattern_covers(wide, narrow, is_covered):
    assert ResourcePattern(wide).covers(ResourcePattern(narrow)) is is_covered


def test_namespace_has_possible_matches():
    assert ResourcePattern("/shop/x*").has_matches_in("shop")
    assert not ResourcePattern("/shop/x*").has_matches_in("bank")
    assert not ResourcePattern("/*/x").has_matches_in("system")
    assert not ResourcePattern("cluster").has_matches_in("shop")
    assert ResourcePattern("*").has_matches_in("system")
    assert not ResourcePattern("/shop/*").matches(CLUSTER)
