"""A key belongs to a consumer that accepts it, of the lowest priority value."""

from __future__ import annotations

import pytest

from pydanube_broker.dispatch.key_shared.key_filters import KeyFilters
from pydanube_broker.dispatch.key_shared.key_owners import (
    OWNERS_REMEMBERED_MAX,
    KeyOwners,
)
from pydanube_broker.dispatch.message_spans import NOBODY

KEYS = [b"%s-%d" % (name, number) for name in (b"eu", b"us") for number in range(200)]


@pytest.fixture
def owners():
    return KeyOwners()


def add(owners, consumer, *filters, priority=0):
    owners.add(consumer, priority, KeyFilters(filters))


def test_key_that_no_consumer_accepts_has_no_owner(owners):
    assert set(owners.owners_of(KEYS)) == {NOBODY}
    add(owners, 1, "eu-*")
    assert owners.owners_of([b"eu-1", b"us-1"]) == [1, NOBODY]


def test_every_consumer_that_accepts_keys_owns_some(owners):
    add(owners, 1, "eu-*")
    add(owners, 2)
    found = dict(zip(KEYS, owners.owners_of(KEYS), strict=True))
    assert {o for key, o in found.items() if key.startswith(b"us")} == {2}
    assert {o for key, o in found.items() if key.startswith(b"eu")} == {1, 2}


def test_name_of_a_consumer_determines_its_keys(owners):
    for consumer, name in ((1, "anna"), (2, "ben")):
        owners.add(consumer, 0, KeyFilters(()), name)
    before = owners.owners_of(KEYS)
    # The consumer reconnects with another number.
    owners.remove(1)
    owners.add(7, 0, KeyFilters(()), "anna")
    assert owners.owners_of(KEYS) == [7 if owner == 1 else 2 for owner in before]
    others = KeyOwners()
    for consumer, name in ((1, "carla"), (2, "dora")):
        others.add(consumer, 0, KeyFilters(()), name)
    assert others.owners_of(KEYS) != before


def test_lowest_priority_value_that_accepts_a_key_owns_it(owners):
    add(owners, 1, priority=5)
    add(owners, 2, priority=7)
    add(owners, 3, "eu-*", priority=-1)
    found = dict(zip(KEYS, owners.owners_of(KEYS), strict=True))
    assert all(o == (3 if key.startswith(b"eu") else 1) for key, o in found.items())
    # The second owns no key as long as the first is present.
    assert owners.priority_max == 5
    owners.remove(1)
    assert owners.priority_max == 7
    assert set(owners.owners_of(KEYS)) == {2, 3}


def test_only_keys_of_the_consumer_that_joins_or_leaves_move(owners):
    for consumer in (1, 2, 3):
        add(owners, consumer, *(["eu-*"] if consumer == 3 else []))
    before = owners.owners_of(KEYS)
    add(owners, 4)
    after = owners.owners_of(KEYS)
    drained = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
    assert {a for _, a in drained} == {4}
    owners.remove(4)
    assert owners.owners_of(KEYS) == before


def test_cache_is_bounded_and_does_not_change_owners(owners):
    add(owners, 1)
    add(owners, 2)
    many = [b"%d" % number for number in range(2 * OWNERS_REMEMBERED_MAX)]
    first = owners.owners_of(many[:OWNERS_REMEMBERED_MAX])
    owners.owners_of(many[OWNERS_REMEMBERED_MAX:])
    assert owners.owners_of(many[:OWNERS_REMEMBERED_MAX]) == first
