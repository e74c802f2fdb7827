"""
Long random histories of subscriptions, checked by the model after each event.

Hypothesis finds short histories that violate a rule (test_subscriptions.py).  These are
long ones, with much state and many combinations.
"""

from __future__ import annotations

import random

import pytest

from pydanube.model.policy import (
    Backoff,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from support.models.key_shared_model import history_of

KINDS = [
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
    SubscriptionType.KEY_SHARED,
]
EVENT_COUNT = 300


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("seed", range(4))
def test_long_history_violates_no_rule_and_leaves_no_message(kind, seed):
    run(kind, seed)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [10, pytest.param(500, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_many_long_histories_violate_no_rule_and_leave_no_message(kind, count):
    for seed in range(1000, 1000 + count):
        run(kind, seed)


def run(kind, seed):
    rng = random.Random(seed)
    history = RandomHistory(kind, rng)
    for _ in range(EVENT_COUNT):
        history.step()
    history.history.process_all()


class RandomHistory:
    """Random events, weighted by frequency."""

    def __init__(self, kind, rng):
        self.rng = rng
        self.history = history_of(
            kind,
            rng.randrange(5),
            set(rng.sample(range(30), rng.randrange(5))),
            self.policy(),
            done_ranges_max=rng.choice([2, 10, 1000, 1000]),
            deferred_spans_max=rng.choice([3, 10, 1000, 1000]),
        )
        self.events = {
            self.credit: 20,
            self.batch: 20,
            self.ack: 20,
            self.nack: 10,
            self.extend: 6,
            self.release: 3,
            self.time: 12,
            self.join: 4,
            self.leave: 2,
            self.replace: 1,
            self.parking: 6,
            self.new_policy: 2,
            self.limits: 1,
            self.rate: 1,
            self.pause: 1,
            self.seek: 0.3,
            self.skip: 0.3,
            self.ack_anything: 2,
        }

    def step(self):
        (event,) = self.rng.choices(list(self.events), list(self.events.values()))
        event()

    def join(self):
        if len(self.history.machine.consumers) < 4:
            self.history.join(self.rng.choice([0, 0, 0, 0, 1, -1]))

    def leave(self):
        if self.history.machine.consumers:
            self.history.leave(self.rng.choice(list(self.history.machine.consumers)))

    def replace(self):
        if self.history.machine.consumers:
            self.history.replace(self.rng.choice(list(self.history.machine.consumers)))

    def credit(self):
        if not self.history.machine.consumers:
            self.history.join()
        consumer = self.rng.choice(list(self.history.machine.consumers))
        byte_count = self.rng.choice([-100, 50, 10_000, 10_000])
        self.history.credit(consumer, self.rng.randrange(20), byte_count)

    def batch(self):
        if not self.history.machine.demand() and self.rng.random() < 0.7:
            return
        windows = []
        if self.rng.random() < 0.4:
            times = [None, None, 0.5, 2.0, 5.0, 30.0]
            windows = [
                (
                    self.rng.randrange(3),
                    self.rng.randrange(1, 6),
                    self.rng.choice(times),
                    self.rng.choice(times),
                )
                for _ in range(self.rng.randrange(4))
            ]
        self.history.add_batch(
            self.rng.randrange(1, 16),
            self.rng.randrange(1, 1000),
            earlier=self.rng.choice([0, 0, 0, 2]),
            windows=windows,
        )

    def ack(self):
        self.history.ack(self.some(self.history.model.in_flight, 5))

    def ack_anything(self):
        begin, end = self.history.model.offset, self.history.machine.next_offset + 3
        self.history.ack(self.some(range(begin, end), 2))

    def nack(self):
        self.history.nack(
            self.some(self.history.model.in_flight, 2),
            self.rng.choice([0.0, 0.0, 1.5, 1000.0]),
            self.rng.choice(["", "bad"]),
        )

    def release(self):
        if self.history.machine.consumers:
            self.history.release(
                self.rng.choice(list(self.history.machine.consumers)),
                self.some(self.history.model.in_flight, 2),
            )

    def extend(self):
        if self.history.machine.consumers:
            self.history.extend(
                self.rng.choice(list(self.history.machine.consumers)),
                self.some(self.history.model.in_flight, 2),
                self.rng.choice([None, 1.0, 30.0]),
            )

    def time(self):
        deadline = self.history.machine.next_deadline()
        if deadline is not None and self.rng.random() < 0.5:
            self.history.pass_time(max(0.0, deadline - self.history.now))
        elif self.rng.random() < 0.5:
            self.history.pass_time(self.rng.choice([0.0, 0.1, 1.0, 7.0]))
        else:
            self.history.pass_time_unnoticed(self.rng.choice([0.1, 1.0]))

    def parking(self):
        if not self.history.model.parked:
            return
        base = self.rng.choice(sorted(self.history.model.parked))
        end = base + self.rng.choice([1, 1, 5, 50])
        if self.rng.random() < 0.6:
            self.history.park(base, end)
        else:
            self.history.fail_to_park(base, end, self.rng.choice([0.0, 2.0]))

    def new_policy(self):
        self.history.set_policy(self.policy())

    def limits(self):
        self.history.set_limits(
            self.rng.choice([None, None, 1, 10]), self.rng.choice([None, 1, 5])
        )

    def rate(self):
        self.history.set_rate(self.rng.choice([None, None, 0.5, 5.0, 300.0]))

    def pause(self):
        self.history.set_paused(is_paused=self.rng.random() < 0.3)

    def seek(self):
        end = self.history.machine.next_offset
        self.history.seek(self.rng.randrange(max(0, end - 30), end + 5))

    def skip(self):
        self.history.skip(self.rng.randrange(6), self.rng.randrange(6))

    def policy(self):
        return FailurePolicy(
            redeliveries_max=self.rng.choice([0, 1, 2, 5]),
            ack_timeout_s=self.rng.choice([None, 3.0, 10.0]),
            redelivery_delay_s=self.rng.choice([0.0, 0.5, 1.0, 4.0]),
            redelivery_delay_s_max=self.rng.choice([2.0, 60.0]),
            backoff=self.rng.choice(list(Backoff)),
            poison=self.rng.choice(list(PoisonPolicy)),
            dead_letter_topic=self.rng.choice([None, "/default/dead"]),
            dead_letter_expired=self.rng.random() < 0.5,
        )

    def some(self, offsets, ranges_max):
        """Return ranges that begin at some of *offsets*."""
        offsets = sorted(offsets)
        if not offsets:
            return []
        bases = [self.rng.choice(offsets) for _ in range(ranges_max)]
        return [(base, base + self.rng.choice([1, 2, 10])) for base in bases]
