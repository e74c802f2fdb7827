"""
Subscriptions remember failures, however often their brokers restart.

A machine gets random events.  At random moments another one takes its place, which has
only what the journal has: the cursor in its last saved state.  A message that has
failed so and so often is delivered with that attempt and no other, and is never
delivered after its final failure.
"""

from __future__ import annotations

from random import Random

import pytest

from pydanube.model.policy import FailurePolicy, SubscriptionType
from pydanube.wire.files.journal_format import (
    CursorSaved,
    decode_entry,
    encode_entry,
)
from pydanube_broker.broker.delivery.cursors import state_of
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Deliver, SaveCursor
from pydanube_broker.dispatch.message_spans import BatchKeys

POLICY = FailurePolicy(redeliveries_max=2, redelivery_delay_s=0.0)
BATCH = 5
MESSAGES = 60
KEYS = (b"a", b"b", b"c")


class World:
    """A subscription of a topic with ``MESSAGES``, over the runs of its broker."""

    def __init__(self, type_: SubscriptionType, random: Random) -> None:
        self.type = type_
        self.random = random
        self.failures: dict[int, int] = {}
        """The failures of each message."""
        self.done: set[int] = set()
        self.in_flight: set[int] = set()
        self.cursor = Cursor(0)
        self.start(Cursor(0))

    def start(self, cursor: Cursor) -> None:
        self.in_flight.clear()
        self.machine = MACHINES[self.type](cursor, failure_policy=POLICY)
        self.saved = state_of(cursor)
        self.follow(self.machine.on_consumer_joined(1, 0.0, name="c"))

    def restart(self) -> None:
        """Continue as the next run of the broker does, from the journal."""
        entry = CursorSaved(1, "s", self.saved)
        [data], _ = encode_entry(entry, position=0, synced=0, seed=0)
        state = decode_entry(memoryview(data), 0, 0).entry.cursor
        self.start(
            Cursor(state.offset, state.done.copy(), failures=state.failures),
        )

    def follow(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, SaveCursor):
                self.saved = state_of(self.machine.cursor)
            elif isinstance(effect, Deliver):
                for base, end in effect.ranges():
                    for offset in range(base, end):
                        failures = self.failures.get(offset, 0)
                        assert offset not in self.done
                        assert failures <= POLICY.redeliveries_max
                        assert effect.attempt == failures + 1, offset
                        self.in_flight.add(offset)

    def step(self) -> None:
        machine, random = self.machine, self.random
        match random.randrange(6):
            case 0:
                self.follow(machine.on_credit(1, random.randrange(1, 8), 10**6, 0.0))
            case 1 | 2 if machine.demand() > 0 and machine.next_offset < MESSAGES:
                base = machine.next_offset // BATCH * BATCH
                codes = [each % len(KEYS) for each in range(base, base + BATCH)]
                keys = BatchKeys(KEYS, codes)
                self.follow(
                    machine.on_available(base, base + BATCH, 100, 0.0, keys=keys)
                )
            case 3 if self.in_flight:
                offset = random.choice(sorted(self.in_flight))
                self.in_flight.discard(offset)
                self.done.add(offset)
                self.follow(machine.on_ack([(offset, offset + 1)], 0.0))
            case 4 if self.in_flight:
                offset = random.choice(sorted(self.in_flight))
                self.in_flight.discard(offset)
                self.failures[offset] = self.failures.get(offset, 0) + 1
                self.follow(machine.on_nack([(offset, offset + 1)], 0.0))
            case 5 if random.random() < 0.2:
                self.restart()

    def blocked(self) -> set[int]:
        ranges = self.machine.deferred.blocked_ranges(self.machine.next_offset)
        return {offset for base, end in ranges for offset in range(base, end)}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("type_", list(SubscriptionType))
def test_failures_and_blocks_survive_restarts(type_, seed):
    world = World(type_, Random(seed))
    for _ in range(400):
        world.step()
        final = {
            offset
            for offset, count in world.failures.items()
            if count > POLICY.redeliveries_max and offset not in world.done
        }
        assert world.blocked() == final
        assert world.machine.deferred.is_blocked(world.machine.next_offset) == bool(
            final
        )
