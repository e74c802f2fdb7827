"""The first signal asks a command to end, the second one insists."""

import asyncio
import os
import signal

import pytest

from pydanube.cli.interruption import Interrupted, run


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


async def noticed(interruption):
    """Send a signal, and let the loop see it."""
    send()
    # It comes through the loop's selector, so a turn or two are needed.
    while not interruption.is_requested:  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_without_a_signal_the_result_comes_back():
    async def work(interruption):
        async with interruption.until_requested():
            return "done"

    assert run(work) == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_ends_at_once_and_what_follows_still_runs(number):
    steps = []

    async def work(interruption):
        async with interruption.until_requested():
            send(number)
            await asyncio.Event().wait()
            steps.append("never")
        steps.append("after")
        assert interruption.is_requested

    with pytest.raises(Interrupted) as raised:
        run(work)
    assert steps == ["after"]
    assert raised.value.number == number


def test_what_is_begun_is_cut_off_when_its_grace_is_over():
    steps = []

    async def work(interruption):
        with interruption.shielded(grace_s=0.0):
            await noticed(interruption)
            steps.append("noticed")
            await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)
    assert steps == ["noticed"]


def test_what_is_begun_is_finished_first():
    steps = []

    async def work(interruption):
        with interruption.shielded():
            await noticed(interruption)
            steps.append("finished")

    with pytest.raises(Interrupted):
        run(work)
    assert steps == ["finished"]


def test_the_second_signal_does_not_wait():
    async def work(interruption):
        with interruption.shielded():
            await noticed(interruption)
            send()
            await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_elsewhere_the_first_signal_cancels():
    async def work(_):
        send()
        await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_after_a_signal_nothing_is_waited_for_any_more():
    async def work(interruption):
        for _ in range(2):
            async with interruption.until_requested():
                if not interruption.is_requested:
                    send()
                await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_a_timeout_of_the_body_stays_one():
    async def work(interruption):
        async with interruption.until_requested():
            raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run(work)
