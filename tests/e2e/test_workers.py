"""A program with workers is stopped by signals in the middle of its work."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest

from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

DRIVER = ROOT / "tests" / "support" / "drivers" / "worker_driver.py"
COUNT = 2000
"""More than a worker processes before it notices a signal."""
SLOW = 50


@pytest.fixture
def topic(client):
    topic = f"/default/orders-{uuid.uuid4().hex}"
    with client.producer(topic, schema=int) as producer:
        producer.send_batch(range(COUNT))
    return topic


@contextmanager
def program(*arguments):
    with subprocess.Popen(
        [sys.executable, str(DRIVER), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process, *last):
    """The lines of *process* as words, to the one that begins with *last*."""
    found = []
    for line in process.stdout:
        found.append(tuple(line.split()))
        if found[-1][: len(last)] == last:
            return found
    raise AssertionError(f"the program has ended without {last}: {found}")


def numbers(lines, word):
    return [int(line[1]) for line in lines if line[0] == word]


def facts_of(client, topic):
    facts = client.subscriptions.describe(topic, "billing")
    return facts.backlog, facts.counts.nacked, facts.counts.timed_out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_calls_finish_and_gives_the_rest_back(
    client, broker_url, topic, number
):
    with program(broker_url, topic, SLOW) as process:
        lines = lines_until(process, "begin", str(SLOW))
        process.send_signal(number)
        print(file=process.stdin, flush=True)
        lines += lines_until(process, "stopped")
        assert process.wait() == 0
    begun, ended = numbers(lines, "begin"), numbers(lines, "end")
    assert sorted(begun) == sorted(ended)
    assert SLOW in ended
    assert facts_of(client, topic) == (COUNT - len(ended), 0, 0)
    with program(broker_url, topic, -1) as process:
        left = set(range(COUNT)) - {*ended}
        again = []
        while left - {*numbers(again, "end")}:
            again += lines_until(process, "end")
        process.send_signal(number)
        assert process.wait() == 0
    # Exactly once, because the program was stopped in good order.
    assert sorted(numbers(again, "begin")) == sorted(left)
    assert facts_of(client, topic) == (0, 0, 0)


def test_a_call_that_never_ends_does_not_keep_the_program_from_ending(
    client, broker_url, topic
):
    with program(broker_url, topic, SLOW, "hang") as process:
        lines = lines_until(process, "begin", str(SLOW))
        process.terminate()
        lines += lines_until(process, "stopped")
        assert process.wait() == 0
    assert SLOW not in numbers(lines, "end")
    with program(broker_url, topic, -1) as process:
        assert lines_until(process, "begin", str(SLOW))[-1] == ("begin", str(SLOW), "2")
        process.terminate()
        process.wait()
    assert facts_of(client, topic)[1:] == (0, 0)
