"""The changes that watchers see."""

from __future__ import annotations

import pytest

from pydanube.metadata.history import History
from pydanube.metadata.key import prefix_of
from pydanube.metadata.store import Change, Revision
from pydanube.model.errors import RevisionConflict

THINGS = prefix_of("/things/", int)


def change(revision: int, path: str = "/things/x") -> Change[bytes]:
    return Change(path, str(revision).encode(), Revision(revision))


def test_watcher_too_far_behind_must_scan_again() -> None:
    history = History(Revision(0), changes_max=2)
    for revision in range(1, 6):
        history.record([change(revision)])
    with pytest.raises(RevisionConflict, match="only those after 3; scan again"):
        history.later_than(Revision(2))
    assert [each.revision for each in history.later_than(Revision(3))] == [4, 5]


def test_changes_before_the_store_was_opened_are_not_available() -> None:
    history = History(Revision(7))
    with pytest.raises(RevisionConflict):
        history.later_than(Revision(6))
    assert history.later_than(Revision(7)) == []


def test_partly_removed_transaction_is_not_returned() -> None:
    history = History(Revision(0), changes_max=1)
    history.record([change(1, "/things/a"), change(1, "/things/b")])
    with pytest.raises(RevisionConflict):
        history.later_than(Revision(0))


async def test_slow_watcher_keeps_only_its_position() -> None:
    history = History(Revision(0), changes_max=3)
    watch = history.watch(THINGS, Revision(0))
    history.record([change(1)])
    assert (await anext(watch)).value == 1
    for revision in range(2, 10):
        history.record([change(revision)])
    with pytest.raises(RevisionConflict):
        await anext(watch)


async def test_dropped_watcher_is_collected() -> None:
    history = History(Revision(0))
    watch = history.watch(THINGS, Revision(0))
    assert len(history._waiting) == 1
    del watch
    assert len(history._waiting) == 0
