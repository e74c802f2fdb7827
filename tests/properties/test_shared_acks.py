"""
A message that transactions of a cluster acknowledge is processed once.

A model explores what can happen to one message: it is delivered, held and decided, the
outcome of the decision may be unknown, its topic is taken over or moves, and the next
owner adopts its cursor.  Each rule is left out once, and then the model must find that
the message is processed twice, or acknowledged without a result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

TRANSACTIONS_MAX = 2
EPOCHS_MAX = 2
READY, DELIVERED, HELD, DONE = "ready", "delivered", "held", "done"


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol; the model can leave out any of them."""

    holds_until_the_outcome: bool = True
    compares_the_epoch: bool = True
    settles_unknown_outcomes: bool = True
    adopts_decided_acks: bool = True
    reads_decisions_after_the_claim: bool = True
    checks_the_owner_after_saving: bool = True
    marks_after_saving: bool = True
    learns_deletions_from_the_store: bool = True


class Broken(AssertionError):
    """The protocol broke a promise."""


class Owner(NamedTuple):
    """A session that serves the topic, and what it knows of the message."""

    epoch: int = 0
    message: str = READY
    has_left: bool = False
    """Whether it has appended the mark that ends the shard."""
    is_closed: bool = False
    """Whether it has left, and has the topic not open any more."""
    saved: str = ""
    """The cursor with the acknowledgement: "before" the mark, "behind" it, or none."""


class Transaction(NamedTuple):
    """One attempt to decide a commit that acknowledges the message."""

    epoch: int
    expected: int
    """The revision of the record that the decision compares."""
    step: str = "held"
    is_sent: bool = False
    """Whether the store may still execute the decision."""
    is_decided: bool = False


@dataclass(frozen=True)
class World:
    """One state: the record, the sessions of the topic, and the transactions."""

    revision: int = 0
    decisions: int = 0
    is_marked: bool = False
    """Whether the record says that the acknowledgement is done."""
    epoch: int = 0
    owners: tuple[Owner, ...] = (Owner(),)
    taking_over: tuple[int, bool] | None = None
    """The epoch of a claim, and whether decisions were read as there before it."""
    transactions: tuple[Transaction, ...] = ()


def changed(items, at, **changes):
    return (*items[:at], items[at]._replace(**changes), *items[at + 1 :])


class Model:
    """What may happen next, under some rules."""

    def __init__(self, rules):
        self.rules = rules

    def following(self, world):
        for at in range(len(world.owners)):
            yield from self.owner_steps(world, at)
        for at in range(len(world.transactions)):
            yield from self.transaction_steps(world, at)
        yield from self.takeover_steps(world)

    # The owner: delivers, begins transactions, and carries decisions out.

    def owner_steps(self, world, at):
        owner = world.owners[at]

        def to(**changes):
            return replace(world, owners=changed(world.owners, at, **changes))

        if owner.message == READY:
            yield to(message=DELIVERED)
        if owner.message == DELIVERED:
            # Its consumer does not answer in time.
            yield to(message=READY)
        can_begin = len(world.transactions) < TRANSACTIONS_MAX
        if owner.message in (READY, DELIVERED) and can_begin:
            # A consumer commits it that has it, or that was too slow.
            begun = Transaction(owner.epoch, world.revision)
            held = to(message=HELD)
            yield replace(held, transactions=(*world.transactions, begun))
        if owner.message == HELD and not self.rules.holds_until_the_outcome:
            yield to(message=READY)
        is_fenced = owner.epoch < world.epoch and not owner.has_left
        if world.decisions and not world.is_marked and not is_fenced:
            if not owner.saved and not owner.is_closed:
                where = "behind" if owner.has_left else "before"
                yield to(message=DONE, saved=where)
            if self.may_mark(owner) or self.takes_as_deleted(owner):
                yield self.mark(world)
        if owner.epoch == world.epoch and not owner.has_left:
            yield to(has_left=True)
        if owner.has_left and not owner.is_closed:
            yield to(is_closed=True)

    def takes_as_deleted(self, owner):
        """Whether the owner drops the acknowledgement; nobody deletes the topic."""
        return owner.is_closed and not self.rules.learns_deletions_from_the_store

    def may_mark(self, owner):
        if owner.saved == "behind":
            return not self.rules.checks_the_owner_after_saving
        return bool(owner.saved) or not self.rules.marks_after_saving

    def mark(self, world):
        return replace(world, is_marked=True, revision=world.revision + 1)

    # Deciding.

    def transaction_steps(self, world, at):
        transaction = world.transactions[at]

        def to(world, **changes):
            return replace(
                world, transactions=changed(world.transactions, at, **changes)
            )

        if transaction.is_sent:
            yield self.execute(world, transaction, to)
        match transaction.step:
            case "held":
                yield to(world, step="deciding", is_sent=True)
            case "deciding":
                # The answer is lost, or the request.
                yield to(world, step="unknown")
                if not transaction.is_sent:
                    yield self.end(world, transaction, to)
            case "unknown" if not self.rules.settles_unknown_outcomes:
                yield self.end(world, transaction, to)
            case "unknown":
                if transaction.is_decided or world.revision != transaction.expected:
                    yield self.end(world, transaction, to)
                else:
                    settled = replace(world, revision=world.revision + 1)
                    yield self.end(settled, transaction, to)

    def execute(self, world, transaction, to):
        is_owner = transaction.epoch == world.epoch or not self.rules.compares_the_epoch
        if not is_owner or world.revision != transaction.expected:
            return to(world, is_sent=False)
        after = replace(
            world, decisions=world.decisions + 1, revision=world.revision + 1
        )
        return to(after, is_sent=False, is_decided=True)

    def end(self, world, transaction, to):
        """Give the message back, unless the commit was decided."""
        if not transaction.is_decided:
            for at, owner in enumerate(world.owners):
                if owner.epoch == transaction.epoch and owner.message == HELD:
                    owners = changed(world.owners, at, message=READY)
                    world = replace(world, owners=owners)
        return to(world, step="over")

    # Taking over, from an owner that has left or is fenced.

    def takeover_steps(self, world):
        source = world.owners[-1]
        if world.taking_over is None:
            if world.epoch < EPOCHS_MAX:
                seen = bool(world.decisions) and not world.is_marked
                yield replace(world, taking_over=(-1, seen))
            return
        claimed, seen = world.taking_over
        if claimed < 0:
            claimed = world.epoch + 1
            yield replace(world, epoch=claimed, taking_over=(claimed, seen))
            return
        if self.rules.reads_decisions_after_the_claim:
            seen = bool(world.decisions) and not world.is_marked
        is_done = source.saved == "before"
        is_done |= seen and self.rules.adopts_decided_acks
        adopted = Owner(
            claimed,
            DONE if is_done else READY,
            # Its journal has the adopted state.
            saved="before" if is_done else "",
        )
        if is_done and not world.decisions:
            raise Broken("acknowledged without a result")
        yield replace(world, taking_over=None, owners=(*world.owners, adopted))

    # The promises.

    def check(self, world):
        if world.decisions > 1:
            raise Broken("processed twice")
        newest = world.owners[-1]
        is_serving = newest.epoch == world.epoch and not newest.has_left
        if is_serving and world.is_marked and newest.message != DONE:
            raise Broken("done, and delivered again")


def explore(rules=Rules()):
    """Visit every state; return how many there are, and the numbers of decisions."""
    model, start = Model(rules), World()
    seen, stack, decisions = {start}, [start], set()
    while stack:
        world = stack.pop()
        decisions.add((world.decisions, world.is_marked, world.epoch))
        for after in model.following(world):
            if after not in seen:
                model.check(after)
                seen.add(after)
                stack.append(after)
    return len(seen), decisions


@pytest.mark.rotated
@pytest.mark.slow
def test_every_interleaving_processes_the_message_once():
    states, found = explore()
    assert states > 1000
    assert {(0, False, EPOCHS_MAX), (1, True, 0), (1, True, EPOCHS_MAX)} <= found


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(Rules.__dataclass_fields__))
def test_model_finds_the_broken_promise_if_a_rule_is_left_out(rule):
    with pytest.raises(Broken):
        explore(Rules(**{rule: False}))
