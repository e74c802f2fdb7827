"""A key belongs to one of those that accept it and come first."""

from __future__ import annotations

import pytest

from pydanube.dispatch.key_shared.key_filters import KeyFilters
from pydanube.dispatch.key_shared.key_owners import OWNERS_REMEMBERED_MAX, KeyOwners
from pydanube.dispatch.message_spans import NOBODY

KEYS = [b"%s-%d" % (name, number) for name in (b"eu", b"us") for number in range(200)]


@pytest.fixture
def owners():
    return KeyOwners()


def add(owners, consumer, *filters, priority=0):
    owners.add(consumer, priority, KeyFilters(filters))


def test_nobody_owns_what_nobody_accepts(owners):
    assert set(owners.of(KEYS)) == {NOBODY}
    add(owners, 1, "eu-*")
    assert owners.of([b"eu-1", b"us-1"]) == [1, NOBODY]


def test_all_that_accept_a_key_compete_for_it(owners):
    add(owners, 1, "eu-*")
    add(owners, 2)
    found = dict(zip(KEYS, owners.of(KEYS), strict=True))
    assert {o for key, o in found.items() if key.startswith(b"us")} == {2}
    assert {o for key, o in found.items() if key.startswith(b"eu")} == {1, 2}


def test_a_name_decides_which_keys_are_a_consumers(owners):
    for consumer, name in ((1, "anna"), (2, "ben")):
        owners.add(consumer, 0, KeyFilters(()), name)
    before = owners.of(KEYS)
    # It comes again, with another number.
    owners.remove(1)
    owners.add(7, 0, KeyFilters(()), "anna")
    assert owners.of(KEYS) == [7 if owner == 1 else 2 for owner in before]
    others = KeyOwners()
    for consumer, name in ((1, "carla"), (2, "dora")):
        others.add(consumer, 0, KeyFilters(()), name)
    assert others.of(KEYS) != before


def test_the_lowest_priority_value_that_accepts_a_key_has_it(owners):
    add(owners, 1, priority=5)
    add(owners, 2, priority=7)
    add(owners, 3, "eu-*", priority=-1)
    found = dict(zip(KEYS, owners.of(KEYS), strict=True))
    assert all(o == (3 if key.startswith(b"eu") else 1) for key, o in found.items())
    # The second never gets anything as long as the first is there.
    assert owners.priority_max == 5
    owners.remove(1)
    assert owners.priority_max == 7
    assert set(owners.of(KEYS)) == {2, 3}


def test_only_keys_of_who_comes_or_goes_move(owners):
    for consumer in (1, 2, 3):
        add(owners, consumer, *(["eu-*"] if consumer == 3 else []))
    before = owners.of(KEYS)
    add(owners, 4)
    after = owners.of(KEYS)
    moved = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
    assert {a for _, a in moved} == {4}
    owners.remove(4)
    assert owners.of(KEYS) == before


def test_what_is_remembered_is_bounded_and_does_not_matter(owners):
    add(owners, 1)
    add(owners, 2)
    many = [b"%d" % number for number in range(2 * OWNERS_REMEMBERED_MAX)]
    first = owners.of(many[:OWNERS_REMEMBERED_MAX])
    owners.of(many[OWNERS_REMEMBERED_MAX:])
    assert owners.of(many[:OWNERS_REMEMBERED_MAX]) == first
