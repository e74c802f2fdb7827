"""Producers and consumers by name and by number."""

from __future__ import annotations

from pydanube.model.ids import producer_id_of
from pydanube_broker.servers.grpc.pure.id_registry import IdRegistry


def test_item_is_found_by_name_and_number():
    register: IdRegistry[str] = IdRegistry("producer")
    number = register.add(("/default/orders", "p"), "thing")
    assert number == producer_id_of("/default/orders", "p")
    assert register.get(number) == register.find(("/default/orders", "p")) == "thing"
    assert register.values() == ["thing"]


def test_removed_item_gets_its_number_again():
    register: IdRegistry[str] = IdRegistry("producer")
    number = register.add(("t", "p"), "thing")
    register.remove(("t", "p"))
    assert register.get(number) is None
    assert register.find(("t", "p")) is None
    assert len(register) == 0
    assert register.add(("t", "p"), "again") == number


def test_colliding_names_get_different_numbers():
    register: IdRegistry[str] = IdRegistry(
        "producer", stable_id=lambda _, again: 7 + again
    )
    assert register.add(("t", "one"), "one") == 7
    assert register.add(("t", "two"), "two") == 8
    assert (register.get(7), register.get(8)) == ("one", "two")


def test_restored_item_keeps_its_number():
    register: IdRegistry[str] = IdRegistry("producer")
    register.restore(("t", "one"), 7, "one")
    assert register.get(7) == register.find(("t", "one")) == "one"
