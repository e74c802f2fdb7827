"""
Golden scenarios of subscription machines: ``subscription/*.txt``.

A line at the margin is an event; the indented lines below it are the machine's effects.
``#`` begins a comment.  To accept changed effects, run ``pytest tests/scenarios
--rewrite`` and read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pydanube.model.errors import BrokerError
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    Drop,
    Park,
    SaveCursor,
)
from pydanube_broker.dispatch.message_spans import BatchKeys, DeliveryWindow

SCENARIOS = sorted((Path(__file__).parent / "subscription").glob("*.txt"))
PLENTY = 1 << 40


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_machine_returns_the_recorded_effects(path, is_rewriting):
    written = path.read_text()
    played = play(written)
    if is_rewriting:
        path.write_text(played)
    assert played == written or is_rewriting


def play(text):
    """Return the scenario with the effects that the machine returns now."""
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
    """A machine, and a method for each command of the scripts."""

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
        """subscription KIND OFFSET [done=RANGE,…] [done-max=N] [deferred-max=N] …"""
        given = dict(option.split("=") for option in options)
        done = given.pop("done", None)
        self.machine = MACHINES[SubscriptionType(kind)](
            Cursor(int(offset), RangeSet(parse(*done.split(",")) if done else ())),
            done_ranges_max=int(given.pop("done-max", 100_000)),
            deferred_spans_max=int(given.pop("deferred-max", 1_000)),
            failure_policy=policy_of(**given),
        )
        return []

    def do_policy(self, *options):
        """policy [timeout=S] [redeliveries=N] [delay=S] [delay-max=S]
        [backoff=fixed|exponential] [poison=block|drop|dead_letter] [dead-letters=TOPIC]
        [expired=park]
        """
        given = dict(option.split("=") for option in options)
        return self.machine.set_failure_policy(policy_of(**given), self.now)

    def do_limits(self, *options):
        """limits [all=N] [each=N]"""
        given = {name: int(n) for name, n in (option.split("=") for option in options)}
        limits = DispatchLimits(
            unacked_messages_max=given.get("all"),
            unacked_messages_max_per_consumer=given.get("each"),
        )
        return self.machine.set_limits(limits, self.now)

    def do_rate(self, messages_per_s):
        """rate N|none"""
        rate = None if messages_per_s == "none" else float(messages_per_s)
        return self.machine.set_rate(rate, self.now)

    def do_pause(self):
        return self.machine.set_paused(True, self.now)

    def do_resume(self):
        return self.machine.set_paused(False, self.now)

    def do_joined(self, name, *options):
        """joined NAME [PRIORITY] [filters=FILTER,…]"""
        given = dict(option.split("=") for option in options if "=" in option)
        priority = next((int(each) for each in options if "=" not in each), 0)
        self.names.append(name)
        return self.machine.on_consumer_joined(
            self.number(name),
            self.now,
            priority=priority,
            key_filters=given["filters"].split(",") if "filters" in given else (),
            name=name,
        )

    def do_left(self, name):
        return self.machine.on_consumer_left(self.number(name), self.now)

    def do_replaced(self, name):
        return self.machine.on_consumer_replaced(self.number(name), self.now)

    def do_credit(self, name, messages, byte_count=PLENTY):
        return self.machine.on_credit(
            self.number(name), int(messages), int(byte_count), self.now
        )

    def do_batch(self, batch, *options):
        """batch RANGE [BYTES] [RANGE:due=S,expires=S]… [keys=KEY,…]"""
        ((base, end),) = parse(batch)
        windows = [window_of(option) for option in options if ":" in option]
        byte_count = next((int(each) for each in options if each.isdigit()), 100)
        keys = [each.removeprefix("keys=") for each in options if "keys=" in each]
        return self.machine.on_available(
            base,
            end,
            byte_count,
            self.now,
            windows,
            keys=keys_of(*keys) if keys else None,
        )

    def do_ack(self, *ranges):
        return self.machine.on_ack(parse(*ranges), self.now)

    def do_ack_through(self, end):
        return self.machine.on_ack([(0, int(end))], self.now)

    def do_skip(self, count, end_offset):
        cursor = self.machine.cursor
        end = cursor.end_of_open(int(count), int(end_offset))
        return self.machine.on_ack([(cursor.offset, end)], self.now, end)

    def do_nack(self, *words):
        """nack RANGE… [delay=S] [reason=WORD]"""
        given = dict(word.split("=") for word in words if "=" in word)
        return self.machine.on_nack(
            parse(*(word for word in words if "=" not in word)),
            self.now,
            delay_s=float(given.get("delay", 0)),
            reason=given.get("reason", ""),
        )

    def do_release(self, name, *ranges):
        return self.machine.on_release(self.number(name), parse(*ranges), self.now)

    def do_extend(self, name, *words):
        """extend NAME RANGE… [timeout=S]"""
        given = dict(word.split("=") for word in words if "=" in word)
        return self.machine.on_extend(
            self.number(name),
            parse(*(word for word in words if "=" not in word)),
            self.now,
            ack_timeout_s=float(given["timeout"]) if given else None,
        )

    def do_parked(self, range_):
        return self.machine.on_parked(*parse(range_)[0], self.now)

    def do_park_failed(self, range_, retry_at):
        return self.machine.on_park_failed(*parse(range_)[0], self.now, float(retry_at))

    def do_wait(self, passed_s):
        self.now += float(passed_s)
        return self.machine.on_time(self.now)

    def do_seek(self, offset):
        return self.machine.on_seek(int(offset), self.now)

    def do_show(self):
        """show: the public state of the machine."""
        machine = self.machine
        consumers = [
            f"{self.names[each]} may get {credit.messages}"
            for each, credit in machine.consumers.items()
        ]
        deadline = machine.next_deadline()
        until = "none" if deadline is None else f"{deadline:g}"
        ready, in_flight = machine.ready_count, machine.in_flight.count
        next_offset, demand = machine.next_offset, machine.demand()
        deferred = {
            "delayed": machine.deferred.waiting.count,
            "blocked": " ".join(
                tell_range(*each) for each in machine.deferred.blocked.ranges()
            ),
            "parked": machine.deferred.parked.count,
        }
        shown = [f"{state} {count}" for state, count in deferred.items() if count]
        return [
            f"cursor {self.cursor()}, next {next_offset}, demand {demand}",
            f"ready {ready}, in flight {in_flight}, deadline {until}",
            *([", ".join(shown)] if shown else []),
            *consumers,
        ]

    def tell(self, effect):
        match effect:
            case Deliver(consumer, _, _, attempt):
                again = f", attempt {attempt}" if attempt > 1 else ""
                shown = " ".join(tell_range(*each) for each in effect.ranges())
                return f"deliver {shown} to {self.names[consumer]}{again}"
            case Park(base, end, attempt, reason):
                return f"park {base}…{end} after {attempt} attempts: {reason}"
            case Drop(base, end, reason):
                return f"drop {base}…{end}: {reason}"
            case SaveCursor():
                return f"save cursor {self.cursor()}"
            case BecomeActive(consumer):
                return f"{self.names[consumer]} becomes active"
            case BecomeStandby(consumer):
                return f"{self.names[consumer]} becomes standby"

    def number(self, name):
        # The last consumer of that name: it may have left and joined again.
        return len(self.names) - 1 - self.names[::-1].index(name)

    def cursor(self):
        cursor = self.machine.cursor
        done = [tell_range(base, end) for base, end in cursor.done]
        return " + ".join([str(cursor.offset), *done])


def policy_of(**given):
    """Return a failure policy; options that a script does not give are off."""
    return FailurePolicy(
        redeliveries_max=int(given.pop("redeliveries", 5)),
        ack_timeout_s=float(given.pop("timeout")) if "timeout" in given else None,
        redelivery_delay_s=float(given.pop("delay", 0)),
        redelivery_delay_s_max=float(given.pop("delay-max", 60)),
        backoff=Backoff(given.pop("backoff", "fixed")),
        poison=PoisonPolicy(given.pop("poison", "block")),
        dead_letter_topic=given.pop("dead-letters", None),
        dead_letter_expired=given.pop("expired", "drop") == "park",
        **given,
    )


def window_of(text):
    range_, _, options = text.partition(":")
    given = dict(option.split("=") for option in options.split(","))
    return DeliveryWindow(
        *parse(range_)[0], **{name: float(time) for name, time in given.items()}
    )


def keys_of(text):
    keys = [key.encode() for key in text.split(",")]
    unique = sorted(set(keys))
    return BatchKeys(unique, [unique.index(key) for key in keys])


def tell_range(base, end):
    return f"{base}…{end}"


def parse(*ranges):
    """Parse ranges: ``3…7`` is (3, 7), and ``3`` is (3, 4)."""
    parted = [text.partition("…") for text in ranges]
    return [(int(base), int(end) if end else int(base) + 1) for base, _, end in parted]
