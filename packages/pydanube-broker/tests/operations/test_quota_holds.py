"""A hold ends when nothing is owed any more, and tells it once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pydanube_broker.operations.quota_holds import QuotaHold, wait_for_quota


@pytest.fixture
async def new_hold():
    """Return a function that makes holds which look at the quota often."""
    return partial(QuotaHold, asyncio.get_running_loop(), recheck_s=0.001)


async def test_hold_ends_early_when_the_quota_is_raised(new_hold):
    owed, ended = [1000.0], asyncio.Event()
    hold = new_hold(lambda _: owed[0], ended.set)
    hold.extend(1000.0)
    hold.extend(10.0)
    assert hold.is_held
    owed[0] = 0.0
    await ended.wait()
    assert not hold.is_held


async def test_hold_can_be_used_again(new_hold):
    ended = asyncio.Event()
    hold = new_hold(lambda _: 0.0, ended.set)
    for _ in range(2):
        ended.clear()
        hold.extend(5.0)
        assert hold.is_held
        await ended.wait()
        assert not hold.is_held


async def test_hold_that_was_ended_tells_nothing(new_hold):
    told = []
    hold = new_hold(lambda _: 0.0, lambda: told.append(1))
    hold.extend(5.0)
    hold.end()
    await wait_for_quota(5.0, lambda _: 0.0, recheck_s=0.001)
    assert not told
    assert not hold.is_held


async def test_wait_is_over_at_its_own_time_although_others_owe_more():
    await wait_for_quota(0.002, lambda _: 1000.0)
    await wait_for_quota(0.0, lambda _: 1000.0)
