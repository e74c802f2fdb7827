"""Sessions as their holders see them."""

from __future__ import annotations

import pytest

from pydanube.metadata.sessions import Session, boot_clock
from pydanube.model.errors import SessionLost


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
