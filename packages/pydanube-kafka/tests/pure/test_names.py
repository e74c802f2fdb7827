"""Kafka's names of topics, and those of the broker."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube_kafka.pure.names import TopicNames

PLAIN, NAMESPACED = TopicNames(False), TopicNames(True)


@pytest.mark.parametrize(
    ("names", "name", "topic"),
    [
        (PLAIN, "orders", "/default/orders"),
        (PLAIN, "shop.orders", "/default/shop.orders"),
        (NAMESPACED, "orders", "/default/orders"),
        (NAMESPACED, "shop.orders", "/shop/orders"),
        (NAMESPACED, "shop.orders.new", "/shop/orders.new"),
        (NAMESPACED, "default.shop.orders", "/default/shop.orders"),
    ],
)
def test_names_lead_to_topics_and_back(names, name, topic):
    assert str(names.parse(name)) == topic
    assert names.name_of(TopicName.parse(topic)) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 250, "a..b", "a-part-3"])
def test_other_names_are_refused(name):
    with pytest.raises(InvalidName):
        PLAIN.parse(name)


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (PLAIN, "/shop/orders"),
        (NAMESPACED, "/system/audit"),
        (PLAIN, "/default/größe"),
    ],
)
def test_topics_that_clients_cannot_name_are_not_shown(names, topic):
    assert names.name_of(TopicName.parse(topic)) is None
