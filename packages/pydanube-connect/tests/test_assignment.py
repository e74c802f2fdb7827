"""Workers agree about who runs which connector."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.pure.assignment import ABSENT_S, Assignment, owner_of

NAMES = st.lists(
    st.text("abcdef0123456789:-", min_size=1, max_size=8),
    min_size=1,
    max_size=8,
    unique=True,
)
CONNECTORS = [f"connector-{number}" for number in range(40)]


def owners(workers):
    return {each: owner_of(each, workers) for each in CONNECTORS}


@given(NAMES)
def test_each_connector_has_one_owner_and_all_workers_agree(workers):
    views = {each: Assignment(each) for each in workers}
    for view in views.values():
        view.on_workers(reversed(workers), now=1.0)
    for connector in CONNECTORS:
        claiming = [name for name, view in views.items() if view.owns(connector)]
        assert claiming == [owner_of(connector, workers)]


@given(NAMES)
def test_worker_that_leaves_moves_only_its_own_connectors(workers):
    *others, gone = workers
    if not others:
        return
    before, after = owners(workers), owners(others)
    assert all(after[name] == owner for name, owner in before.items() if owner != gone)


@given(NAMES)
def test_worker_that_comes_takes_and_moves_nothing_else(workers):
    *others, new = workers
    if not others:
        return
    before, after = owners(others), owners(workers)
    assert all(owner in {before[name], new} for name, owner in after.items())


def test_connectors_are_spread_over_workers():
    found = list(owners(["a", "b", "c", "d"]).values())
    assert all(found.count(each) >= 4 for each in "abcd")


def test_worker_that_sees_nobody_owns_everything():
    assert all(map(Assignment("a").owns, CONNECTORS))


def test_worker_is_missed_after_some_time_only():
    view = Assignment("a")
    view.on_workers(["a", "b"], now=10.0)
    view.on_workers(["a"], now=10.0 + ABSENT_S / 2)
    assert view.workers == {"a", "b"}
    view.on_workers(["a"], now=10.0 + ABSENT_S)
    assert view.workers == {"a"}
    # It is there again, for example after its topic has moved.
    view.on_workers(["a", "b"], now=11.0 + ABSENT_S)
    assert view.workers == {"a", "b"}
