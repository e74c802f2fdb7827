"""Which brokers Kafka clients are told about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pydanube_kafka.brokers import LISTED_S, Brokers
from pydanube_kafka.pure.nodes import Node, number_of


def test_a_broker_that_has_left_is_listed_a_while_but_coordinates_nothing() -> None:
    others = [
        SimpleNamespace(broker_id=each, addresses={"kafka": f"host-{each}:1"})
        for each in "bc"
    ]
    shards = SimpleNamespace(
        owners=SimpleNamespace(others=lambda: others),
        count=1,
        broker_of=lambda *_: "b",
        claims_of=lambda _: 1,
    )
    broker: Any = SimpleNamespace(broker_id="a", shards=shards)
    now = 100.0
    brokers = Brokers(broker, "host-a:1", lambda: now)
    a, b, c = (Node(number_of(each), f"host-{each}", 1) for each in "abc")
    assert brokers.list("local") == [a, b, c]
    assert brokers.coordinator_of("group", "local") == b
    del others[0]
    now += LISTED_S - 1
    assert brokers.list("local") == [a, b, c]
    assert brokers.coordinator_of("group", "local") is None
    now += 1
    assert brokers.list("local") == [a, c]
    # It comes back at another address.
    others.insert(0, SimpleNamespace(broker_id="b", addresses={"kafka": "new:2"}))
    assert set(brokers.list("local")) == {a, Node(b.number, "new", 2), c}
