"""The first signal asks a command to stop, the second one forces it."""

import asyncio
import os
import signal

import pytest

from pydanube_cli.invocation.interruption import Interrupted, run


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


async def noticed(interruption):
    """Send a signal, and let the loop handle it."""
    send()
    # Signals arrive through the loop's selector, after one or two turns.
    while not interruption.is_requested:  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_run_returns_the_result():
    async def work(interruption):
        async with interruption.until_requested():
            return "done"

    assert run(work) == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_until_requested_and_the_code_after_it_runs(number):
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


def test_shielded_code_is_cancelled_after_its_grace_period():
    steps = []

    async def work(interruption):
        with interruption.shielded(grace_s=0.0):
            await noticed(interruption)
            steps.append("noticed")
            await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)
    assert steps == ["noticed"]


def test_shielded_code_finishes():
    steps = []

    async def work(interruption):
        with interruption.shielded():
            await noticed(interruption)
            steps.append("finished")

    with pytest.raises(Interrupted):
        run(work)
    assert steps == ["finished"]


def test_second_signal_cancels():
    async def work(interruption):
        with interruption.shielded():
            await noticed(interruption)
            send()
            await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_first_signal_cancels_other_code():
    async def work(_):
        send()
        await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_until_requested_does_not_wait_after_a_signal():
    async def work(interruption):
        for _ in range(2):
            async with interruption.until_requested():
                if not interruption.is_requested:
                    send()
                await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        run(work)


def test_timeout_error_of_the_body_passes():
    async def work(interruption):
        async with interruption.until_requested():
            raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run(work)
