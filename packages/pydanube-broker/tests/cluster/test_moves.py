"""The controller's changes of a shard in each state."""

from __future__ import annotations

import msgspec
import pytest

from pydanube_broker.cluster.pure.moves import (
    cancel,
    direct,
    heading_for,
    is_drained,
    is_journal_needed,
    place,
)
from pydanube_broker.cluster.pure.ownership import ShardView
from pydanube_broker.metadata.cluster_records import ShardRecord, ShardState

BOTH = {"a", "b"}
OPEN = ShardRecord(state=ShardState.OPEN, epoch=4, owner="a", source="a")
OPENING = ShardRecord(state=ShardState.OPENING, epoch=4, owner="a", source="z")
PREPARING = msgspec.structs.replace(OPEN, target="b")
CLOSING = msgspec.structs.replace(PREPARING, state=ShardState.CLOSING)
CANCELLED = msgspec.structs.replace(CLOSING, target=None)
RELEASED = ShardRecord(source="a", has_left=True, target="b")


def directed(record: ShardRecord, target: str, present: set[str]) -> ShardRecord | None:
    change = direct(ShardView(record, 7), target, present)
    if change is None:
        return None
    assert change.revision == 7
    assert change.present is change.gone is change.freeze is None
    return change.record


def test_owner_of_an_open_shard_goes_on_until_the_target_is_prepared() -> None:
    assert directed(OPEN, "b", BOTH) == PREPARING


def test_move_to_another_target_begins_again() -> None:
    assert directed(PREPARING, "c", {"a", "b", "c"}) == msgspec.structs.replace(
        OPEN, target="c"
    )


def test_move_back_to_the_owner_cancels_the_move() -> None:
    assert directed(PREPARING, "a", BOTH) == OPEN


@pytest.mark.parametrize("record", [OPEN, OPENING, CLOSING, RELEASED, ShardRecord()])
def test_shard_without_a_present_owner_gets_a_target(record: ShardRecord) -> None:
    assert directed(record, "c", {"c"}) == msgspec.structs.replace(record, target="c")


def test_takeover_of_a_present_session_is_not_interrupted() -> None:
    assert directed(OPENING, "b", BOTH) is None


@pytest.mark.parametrize(
    ("record", "target"),
    [(OPEN, "a"), (PREPARING, "b"), (CLOSING, "b"), (RELEASED, "b")],
)
def test_shard_that_has_the_target_is_not_changed(
    record: ShardRecord, target: str
) -> None:
    assert directed(record, target, BOTH) is None


def test_target_of_a_leaving_shard_can_be_replaced() -> None:
    assert directed(CLOSING, "c", BOTH) == msgspec.structs.replace(CLOSING, target="c")


def test_move_is_cancelled_by_removing_the_target() -> None:
    for moving, kept in ((PREPARING, OPEN), (CLOSING, CANCELLED)):
        change = cancel(ShardView(moving, 7))
        assert change is not None
        assert change.record == kept


@pytest.mark.parametrize("record", [OPEN, OPENING, CANCELLED, RELEASED])
def test_shard_that_does_not_move_has_nothing_to_cancel(record: ShardRecord) -> None:
    assert cancel(ShardView(record, 7)) is None


@pytest.mark.parametrize(
    ("record", "present", "session"),
    [
        (OPEN, BOTH, "a"),
        (OPEN, {"b"}, None),
        (PREPARING, BOTH, "b"),
        (PREPARING, {"a"}, "a"),
        (PREPARING, {"b"}, "b"),
        (OPENING, BOTH, "a"),
        (CLOSING, BOTH, "b"),
        (CLOSING, {"b"}, "b"),
        (CLOSING, {"a"}, None),
        (CANCELLED, BOTH, "a"),
        (CANCELLED, {"b"}, None),
        (RELEASED, BOTH, "b"),
        (RELEASED, {"a"}, None),
        (ShardRecord(), BOTH, None),
    ],
)
def test_heading_of_a_shard(
    record: ShardRecord, present: set[str], session: str | None
) -> None:
    assert heading_for(record, present) == session
    placed = place(3, record, present)
    assert placed.session == session
    is_served = record.state is ShardState.OPEN and session == record.owner
    assert placed.is_moving == (session is not None and not is_served)


def test_session_is_drained_when_it_owns_nothing() -> None:
    assert is_drained("a", [RELEASED])
    assert not is_drained("a", [RELEASED, CLOSING])


def test_journal_is_needed_while_a_shard_names_its_session() -> None:
    assert is_journal_needed("a", [RELEASED])
    assert is_journal_needed("z", [OPENING])
    assert not is_journal_needed("b", [OPEN, RELEASED])
