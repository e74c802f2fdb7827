"""
Golden scenarios of subscription machines: ``subscription/*.txt``.

A line at the margin is a fact, the indented lines under it are what the machine
answered.  ``#`` begins a comment.  To accept changed answers:
``pytest tests/scenarios --rewrite``, and read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pydanube.dispatch import machine_for
from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.effects import BecomeActive, BecomeStandby, Deliver, SaveCursor
from pydanube.model.errors import BrokerError
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet

SCENARIOS = sorted((Path(__file__).parent / "subscription").glob("*.txt"))
PLENTY = 1 << 40


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_subscription_answers_as_written(path, is_rewriting):
    written = path.read_text()
    played = play(written)
    if is_rewriting:
        path.write_text(played)
    assert played == written or is_rewriting


def play(text):
    """The scenario with the answers that the machine gives now."""
    scenario = Scenario()
    lines = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        words = line.partition("#")[0].split()
        if words:
            lines += [f"  {answer}" for answer in scenario.play(*words)]
    return "\n".join(lines) + "\n"


class Scenario:
    """One machine, and one method for each command of the scripts."""

    def __init__(self):
        self.now = 0.0
        self.names = []

    def play(self, command, *words):
        try:
            effects = getattr(self, f"do_{command.replace('-', '_')}")(*words)
        except BrokerError as error:
            return [f"error {error.code}: {error}"]
        return [
            self.tell(each) if not isinstance(each, str) else each for each in effects
        ]

    def do_subscription(self, kind, offset, *options):
        """subscription KIND OFFSET [done=RANGE,…] [timeout=SECONDS] [done-max=N]"""
        given = dict(option.split("=") for option in options)
        done = given.get("done")
        self.machine = machine_for(
            SubscriptionType(kind),
            Cursor(int(offset), RangeSet(parse(*done.split(",")) if done else ())),
            ack_timeout_s=float(given["timeout"]) if "timeout" in given else None,
            done_ranges_max=int(given.get("done-max", 100_000)),
        )
        return []

    def do_came(self, name):
        self.names.append(name)
        return self.machine.on_consumer_came(self.number(name), self.now)

    def do_gone(self, name):
        return self.machine.on_consumer_gone(self.number(name), self.now)

    def do_credit(self, name, messages, byte_count=PLENTY):
        return self.machine.on_credit(
            self.number(name), int(messages), int(byte_count), self.now
        )

    def do_batch(self, batch, byte_count=100):
        ((base, end),) = parse(batch)
        return self.machine.on_available(base, end, int(byte_count), self.now)

    def do_ack(self, *ranges):
        return self.machine.on_ack(parse(*ranges), self.now)

    def do_ack_through(self, end):
        return self.machine.on_ack_through(int(end), self.now)

    def do_nack(self, *ranges):
        return self.machine.on_nack(parse(*ranges), self.now)

    def do_wait(self, passed_s):
        self.now += float(passed_s)
        return self.machine.on_time(self.now)

    def do_seek(self, offset):
        return self.machine.on_seek(int(offset), self.now)

    def do_show(self):
        """What is known from outside."""
        machine = self.machine
        consumers = [
            f"{self.names[each]} may get {machine.credit_of(each)[0]}"
            for each in machine.consumers
        ]
        deadline = machine.next_deadline()
        until = "none" if deadline is None else f"{deadline:g}"
        ready, in_flight = machine.ready_count, machine.in_flight_count
        next_offset, wanted = machine.next_offset, machine.wanted()
        return [
            f"cursor {self.cursor()}, next {next_offset}, wanted {wanted}",
            f"ready {ready}, in flight {in_flight}, deadline {until}",
            *consumers,
        ]

    def tell(self, effect):
        match effect:
            case Deliver(consumer, base, end, attempt):
                again = f", attempt {attempt}" if attempt > 1 else ""
                return f"deliver {base}…{end} to {self.names[consumer]}{again}"
            case SaveCursor():
                return f"save cursor {self.cursor()}"
            case BecomeActive(consumer):
                return f"{self.names[consumer]} becomes active"
            case BecomeStandby(consumer):
                return f"{self.names[consumer]} becomes standby"

    def number(self, name):
        # The last of that name: it may have gone and come back.
        return len(self.names) - 1 - self.names[::-1].index(name)

    def cursor(self):
        cursor = self.machine.cursor
        done = [f"{base}…{end}" for base, end in cursor.done]
        return " + ".join([str(cursor.offset), *done])


def parse(*ranges):
    """``3…7`` as (3, 7), and ``3`` as (3, 4)."""
    parted = [text.partition("…") for text in ranges]
    return [(int(base), int(end) if end else int(base) + 1) for base, _, end in parted]
