"""Sessions as their holders see them, and how near they were to their ends."""

from __future__ import annotations

import pytest

from pydanube.model.errors import SessionLost
from pydanube_broker.metadata.sessions import (
    MARGIN_S,
    NEARLY_LOST,
    Margin,
    Session,
    boot_clock,
)

TTL_S = 10.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def session(clock: Clock) -> Session:
    return Session("s-1", valid_until=102.0, clock=clock)


async def test_a_session_is_lost_when_its_time_has_passed(
    session: Session, clock: Clock
) -> None:
    clock.now = 101.9
    session.check()
    assert session.remaining_s == pytest.approx(0.1)
    clock.now = 102.0
    assert session.is_lost
    assert session.remaining_s == 0
    with pytest.raises(SessionLost, match="session s-1 of the metadata store is lost"):
        session.check()


async def test_an_extended_session_is_valid_for_longer(
    session: Session, clock: Clock
) -> None:
    session.extend(103.0)
    session.extend(102.5)
    clock.now = 102.9
    assert not session.is_lost


async def test_a_lost_session_stays_lost(session: Session, clock: Clock) -> None:
    clock.now = 102.0
    session.extend(200.0)
    assert session.is_lost


async def test_an_ended_session_is_lost_at_once(session: Session) -> None:
    session.end()
    assert session.is_lost
    assert session.lost.is_set()
    assert session.remaining_s == 0


def test_the_clock_of_sessions_rises() -> None:
    before = boot_clock()
    assert boot_clock() >= before > 0


def test_a_margin_without_keepalives_is_the_whole_ttl() -> None:
    margin = Margin(TTL_S)
    assert margin.least_s(0.0) == TTL_S
    assert not margin.is_strained(0.0)


def test_the_least_margin_is_remembered_for_a_minute() -> None:
    margin = Margin(TTL_S)
    assert not margin.on_keepalive(6.0, 0.0)
    assert margin.on_keepalive(1.0, 10.0)
    assert not margin.on_keepalive(7.0, 20.0)
    assert (margin.least_s(10.0 + MARGIN_S), margin.near_losses) == (1.0, 1)
    assert margin.is_strained(10.0 + MARGIN_S)
    margin.on_keepalive(7.0, 3 * MARGIN_S)
    assert margin.least_s(3 * MARGIN_S) == 7.0


def test_a_holder_whose_event_loop_stands_still_is_strained(clock: Clock) -> None:
    session = Session("s", valid_until=999.0, ttl_s=TTL_S, clock=clock)
    session.beat()
    clock.now += 1.0
    session.beat()
    assert (session.longest_gap_s, session.is_strained) == (1.0, False)
    clock.now += 5.0
    session.beat()
    assert (session.longest_gap_s, session.is_strained) == (5.0, True)
    clock.now += 2 * MARGIN_S
    session.beat()
    clock.now += MARGIN_S
    session.beat()
    clock.now += 2 * MARGIN_S
    assert not session.is_strained


def test_an_answer_that_came_nearly_too_late_says_how_much_time_was_left() -> None:
    now = 0.0
    session = Session("s", valid_until=TTL_S, ttl_s=TTL_S, clock=lambda: now)
    now = 3.0
    assert session.extend(now + TTL_S) is None
    now += TTL_S - 1.0
    assert session.extend(now + TTL_S) == 1.0
    assert NEARLY_LOST * TTL_S > 1.0


def test_only_the_first_end_of_a_session_is_new() -> None:
    session = Session("s")
    assert session.end()
    assert not session.end()
    assert session.is_lost
