"""
The protocol of the object journal keeps its promises in every interleaving.

A model explores all states of two sessions and a store: requests that are executed
late, answers that are lost, crashes at any point, and an old session that goes on after
the new one has taken over.  Each rule of the protocol is left out once, and then the
model must find a loss.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace

import pytest

from pydanube_broker.storage.pure.group_commits import (
    FIRST_GROUP,
    Answer,
    Fencing,
    GroupCommits,
    Step,
)

OLD, NEW = b"old", b"new"


@dataclass(frozen=True)
class Bounds:
    """How much happens at most."""

    groups: int = 3
    in_flight: int = 2
    lost_answers: int = 1
    takeover_crashes: int = 1
    lost_objects: int = 0


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol; the model can leave out any of them."""

    compares_writers: bool = True
    waits_for_earlier_groups: bool = True
    resolves_unknown_puts: bool = True
    fences_only_if_absent: bool = True
    fences_at_all: bool = True
    probes_all_numbers: bool = True
    freezes_the_record: bool = True
    records_before_removing: bool = True
    keeps_the_fence: bool = True
    searches_behind_holes: bool = True
    reads_holes_again: bool = True
    trusts_fences_behind_holes: bool = True


ABOUT_LOST_OBJECTS = {
    "searches_behind_holes",
    "reads_holes_again",
    "trusts_fences_behind_holes",
}


class Loss(AssertionError):
    """The protocol broke a promise."""


@dataclass
class Request:
    """A request to the store, which executes it at some time, or never."""

    is_put: bool
    number: int
    is_search: bool = False
    answer: object = None
    is_executed: bool = False

    def key(self):
        kind = self.is_put, self.is_search
        return (*kind, self.number, self.answer, self.is_executed)


class AnyOrder(GroupCommits):
    """Acknowledges a group without waiting for those before it."""

    def take_committed(self):
        stored, self._stored = self._stored, set()
        return sorted(stored)


class Believing(GroupCommits):
    """Treats every object as its own."""

    def on_read(self, number, writer):
        return super().on_read(number, writer and self._session)


class Hoping(GroupCommits):
    """Treats a put with an unknown outcome as done."""

    def on_put(self, number, answer):
        return super().on_put(
            number, Answer.STORED if answer is Answer.UNKNOWN else answer
        )


def session(rules):
    if not rules.waits_for_earlier_groups:
        return AnyOrder(OLD)
    if not rules.compares_writers:
        return Believing(OLD)
    if not rules.resolves_unknown_puts:
        return Hoping(OLD)
    return GroupCommits(OLD)


@dataclass
class World:
    """One state of the store, the record and both sessions."""

    rules: Rules
    bounds: Bounds
    old: GroupCommits
    store: dict[int, bytes] = field(default_factory=dict)
    first: int = FIRST_GROUP
    is_frozen: bool = False
    # The old session.
    is_alive: bool = True
    requests: list[Request] = field(default_factory=list)
    ghosts: list[tuple[int, bytes]] = field(default_factory=list)
    """Puts whose sender does not wait for them any more."""
    acked: frozenset[int] = frozenset()
    committed_ends: tuple[int, ...] = ()
    """What each group says about commits, in the order of their numbers."""
    destroyed: frozenset[int] = frozenset()
    """The objects that the store has lost."""
    sealed_end: int = FIRST_GROUP
    """Groups below are in segments, which are not lost."""
    removed_end: int = FIRST_GROUP
    losses: int = 0
    # The new session.
    fencing: Fencing | None = None
    fence_request: Request | None = None
    read: tuple[int, ...] = ()
    recovered: frozenset[int] | None = None
    crashes: int = 0
    is_reported: bool = False
    """Whether a takeover has found that the journal is damaged."""

    def key(self):
        old, fencing, asked = self.old, self.fencing, self.fence_request
        return (
            (old.next_number, old.committed_end, old.is_fenced),
            frozenset(old._stored),
            frozenset(self.store.items()),
            (self.first, self.is_frozen, self.is_alive),
            tuple(sorted(map(repr, (each.key() for each in self.requests)))),
            tuple(sorted(self.ghosts)),
            (self.acked, self.sealed_end, self.removed_end, self.losses),
            (self.committed_ends, self.destroyed),
            None if fencing is None else (fencing.number, fencing.end),
            None if asked is None else asked.key(),
            (self.read, self.recovered, self.crashes, self.is_reported),
        )

    def clone(self):
        other = replace(self)
        other.old = copy(self.old)
        other.old._stored = set(self.old._stored)
        other.store = dict(self.store)
        other.requests = [copy(each) for each in self.requests]
        other.ghosts = list(self.ghosts)
        other.fencing = copy(self.fencing)
        other.fence_request = copy(self.fence_request)
        return other

    # What may happen next: (name, function that does it).

    def actions(self):
        yield from self._store_actions()
        if self.is_alive:
            yield from self._old_actions()
        yield from self._new_actions()

    def _store_actions(self):
        for at, request in enumerate(self.requests):
            if not request.is_executed:
                yield World._execute, at
        for at in range(len(self.ghosts)):
            yield World._execute_ghost, at
        asked = self.fence_request
        if asked is not None and not asked.is_executed:
            yield World._execute_fencing, 0
        # What is lost while a fence is on its way may be replaced by it.
        is_fencing = self.fencing or any(data == NEW for _, data in self.ghosts)
        if len(self.destroyed) < self.bounds.lost_objects and not is_fencing:
            for number in self.store:
                if self._is_provable(number):
                    yield World._destroy, number

    def _is_provable(self, number):
        """Return whether a later object was begun after a group was acknowledged."""
        return self.store[number] == OLD and any(
            writer == NEW or self.committed_ends[later - FIRST_GROUP] > number
            for later, writer in self.store.items()
            if later > number
        )

    def _destroy(self, number):
        del self.store[number]
        self.destroyed |= {number}

    def _old_actions(self):
        old, bounds = self.old, self.bounds
        yield World._crash_old, 0
        if (
            old.next_number < FIRST_GROUP + bounds.groups
            and len(self.requests) < bounds.in_flight
            and not old.is_fenced
        ):
            yield World._begin, 0
        for at, request in enumerate(self.requests):
            if request.is_executed:
                yield World._deliver, at
            if request.is_put and self.losses < bounds.lost_answers:
                yield World._lose, at
        # Sealing runs ahead of trimming by at most one group.
        if self.sealed_end < old.committed_end and self.sealed_end == self.first:
            yield World._seal, 0
        if self.first < self.sealed_end and self.may_record():
            yield World._record_first, 0
        if self.removed_end < self._removable_end():
            yield World._remove, 0

    def may_record(self):
        return not self.is_frozen or not self.rules.freezes_the_record

    def _removable_end(self):
        if self.rules.records_before_removing:
            return self.first
        return self.sealed_end

    def _new_actions(self):
        if self.fencing is None:
            if self.recovered is None or self.crashes < self.bounds.takeover_crashes:
                yield World._take_over, 0
            return
        if self.fencing.end is None:
            asked = self.fence_request
            if asked.is_executed:
                yield World._deliver_fencing, 0
            if asked.is_put and self.losses < self.bounds.lost_answers:
                yield World._lose_fencing, 0
        if self.crashes < self.bounds.takeover_crashes:
            yield World._crash_new, 0
        if self.fencing.end is not None and not self.rules.keeps_the_fence:
            yield World._remove_fence, 0

    # The store.

    def _put(self, number, data):
        if_absent = data == OLD or self.rules.fences_only_if_absent
        if if_absent and number in self.store:
            return Answer.EXISTS
        self.store[number] = data
        return Answer.STORED

    def _answer(self, request, data):
        request.is_executed = True
        if request.is_search:
            request.answer = self._committed_end_behind(request.number)
        elif request.is_put:
            request.answer = self._put(request.number, data)
        else:
            request.answer = self.store.get(request.number)

    def _committed_end_behind(self, number):
        last = max(self.store, default=number)
        if last <= number:
            return 0
        if self.store[last] == OLD:
            return self.committed_ends[last - FIRST_GROUP]
        return last if self.rules.trusts_fences_behind_holes else 0

    def _execute(self, at):
        self._answer(self.requests[at], OLD)

    def _execute_ghost(self, at):
        self._put(*self.ghosts.pop(at))

    def _execute_fencing(self, _):
        self._answer(self.fence_request, NEW)

    def _forget(self, request, data):
        """Leave a request to the store, which may still execute it."""
        if request.is_put and not request.is_executed:
            self.ghosts.append((request.number, data))

    # The old session.

    def _begin(self, _):
        self.requests.append(Request(True, self.old.begin()))
        # Without lost objects this would only multiply the states.
        known = self.old.committed_end if self.bounds.lost_objects else 0
        self.committed_ends += (known,)

    def _deliver(self, at):
        request = self.requests.pop(at)
        if request.is_put:
            step = self.old.on_put(request.number, request.answer)
        else:
            step = self.old.on_read(request.number, request.answer)
        self._continue(request.number, step)

    def _lose(self, at):
        request = self.requests.pop(at)
        self.losses += 1
        self._forget(request, OLD)
        step = self.old.on_put(request.number, Answer.UNKNOWN)
        self._continue(request.number, step)

    def _continue(self, number, step):
        if step is not Step.END:
            self.requests.append(Request(step is Step.PUT, number))
        self.acked |= frozenset(self.old.take_committed())
        self.check()

    def _crash_old(self, _):
        self.is_alive = False
        for request in self.requests:
            self._forget(request, OLD)
        self.requests = []

    def _seal(self, _):
        self.sealed_end += 1

    def _record_first(self, _):
        self.first = self.sealed_end

    def _remove(self, _):
        self.store.pop(self.removed_end, None)
        self.removed_end += 1

    # The new session.

    def _take_over(self, _):
        if self.recovered is not None:
            self.crashes += 1
        self.is_frozen = True
        self.read = ()
        first = self.first
        if not self.rules.probes_all_numbers:
            # It trusts that the names in a list are all that exist.
            first = max([first, *(number + 1 for number in self.store)])
        self.fencing = Fencing(first)
        self.fence_request = Request(False, first)

    def _deliver_fencing(self, _):
        request, fencing = self.fence_request, self.fencing
        self.fence_request = None
        if request.is_search:
            step = fencing.on_search(request.answer)
            if step is Step.READ and not self.rules.reads_holes_again:
                step = fencing.on_read(exists=False)
        elif request.is_put:
            step = fencing.on_put(request.answer)
        else:
            writer = request.answer
            if writer == OLD:
                self.read += (request.number,)
            step = fencing.on_read(exists=writer is not None, is_fence=writer == NEW)
        self._continue_fencing(step)

    def _lose_fencing(self, _):
        request = self.fence_request
        self.losses += 1
        self._forget(request, NEW)
        self.fence_request = None
        self._continue_fencing(self.fencing.on_put(Answer.UNKNOWN))

    def _continue_fencing(self, step):
        if step is Step.SEARCH and not self.rules.searches_behind_holes:
            step = self.fencing.on_search(0)
        if step is Step.PUT and not self.rules.fences_at_all:
            self.fencing.end = self.fencing.number
            step = Step.END
        if step is not Step.END:
            is_search = step is Step.SEARCH
            self.fence_request = Request(
                step is Step.PUT, self.fencing.number, is_search
            )
        elif self.fencing.end is None:
            self._on_damage()
        else:
            self._on_recovered()

    def _on_damage(self):
        if self.fencing.number not in self.destroyed:
            raise Loss(f"group {self.fencing.number} is said to be lost")
        self.fencing = None
        self.is_reported = True

    def _on_recovered(self):
        if not self.rules.probes_all_numbers:
            self.read = tuple(self._listed())
        if sorted(self.read) != list(self.read):
            raise Loss(f"the groups are out of order: {self.read}")
        before, self.recovered = self.recovered, frozenset(self.read)
        kept = self.recovered | self._sealed() | self.destroyed
        if before is not None and not before <= kept:
            raise Loss(f"recovered {before}, and then {self.recovered}")
        self.check()

    def _listed(self):
        for number in range(self.first, self.fencing.end):
            if self.store.get(number) != OLD:
                return
            yield number

    def _crash_new(self, _):
        self.crashes += 1
        if self.fence_request is not None:
            self._forget(self.fence_request, NEW)
        self.fencing = self.fence_request = None

    def _remove_fence(self, _):
        self.store.pop(self.fencing.end, None)

    # The promises.

    def _sealed(self):
        return frozenset(range(FIRST_GROUP, self.sealed_end))

    def check(self):
        if len(self.acked) != max(self.acked, default=0):
            raise Loss(f"acknowledged without those before: {self.acked}")
        if self.recovered is None:
            return
        lost = self.acked - self.recovered - self._sealed() - self.destroyed
        if lost:
            raise Loss(f"acknowledged and not recovered: {sorted(lost)}")


def explore(rules=Rules(), bounds=Bounds()):
    """Visit every state; return their number, recovered groups, and reports."""
    start = World(rules, bounds, session(rules))
    seen = {start.key()}
    stack = [start]
    recovered_counts, reports = set(), 0
    while stack:
        world = stack.pop()
        if world.recovered is not None:
            recovered_counts.add(len(world.recovered))
        reports += world.is_reported
        for act, at in world.actions():
            after = world.clone()
            act(after, at)
            key = after.key()
            if key not in seen:
                seen.add(key)
                stack.append(after)
    return len(seen), recovered_counts, reports


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(groups=2),
        Bounds(groups=4, lost_answers=0, takeover_crashes=0),
        Bounds(groups=2, lost_answers=0, lost_objects=1),
    ],
    ids=["two groups", "four groups", "lost object"],
)
def test_every_interleaving_keeps_the_promises(bounds):
    check_all(bounds)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(),
        Bounds(groups=2, lost_answers=2),
        Bounds(groups=2, lost_objects=1),
        Bounds(lost_answers=0, lost_objects=1),
    ],
    ids=["three groups", "two lost answers", "lost object", "three, lost object"],
)
def test_every_interleaving_of_larger_models_keeps_the_promises(bounds):
    check_all(bounds)


def check_all(bounds):
    states, recovered_counts, reports = explore(bounds=bounds)
    assert states > 1000
    # The model reaches takeovers with no group, with all, and with those between.
    assert recovered_counts == set(range(bounds.groups + 1))
    assert bool(reports) == bool(bounds.lost_objects)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(Rules.__dataclass_fields__))
def test_model_finds_the_loss_if_a_rule_is_left_out(rule):
    bounds = Bounds()
    if rule in ABOUT_LOST_OBJECTS:
        bounds = Bounds(groups=2, lost_answers=0, lost_objects=1)
    with pytest.raises(Loss):
        explore(Rules(**{rule: False}), bounds)


def test_group_is_committed_after_those_before_it():
    groups = GroupCommits(OLD)
    first, second = groups.begin(), groups.begin()
    assert groups.on_put(second, Answer.STORED) is Step.END
    assert list(groups.take_committed()) == []
    assert groups.on_put(first, Answer.STORED) is Step.END
    assert list(groups.take_committed()) == [first, second]
    assert list(groups.take_committed()) == []


def test_put_with_unknown_outcome_is_read_and_put_again():
    groups = GroupCommits(OLD)
    number = groups.begin()
    assert groups.on_put(number, Answer.UNKNOWN) is Step.READ
    assert groups.on_read(number, None) is Step.PUT
    assert groups.on_put(number, Answer.EXISTS) is Step.READ
    assert groups.on_read(number, OLD) is Step.END
    assert list(groups.take_committed()) == [number]
    assert not groups.is_fenced


def test_object_of_another_session_fences():
    groups = GroupCommits(OLD)
    first, second = groups.begin(), groups.begin()
    assert groups.on_put(second, Answer.EXISTS) is Step.READ
    assert groups.on_read(second, NEW) is Step.END
    assert groups.is_fenced
    groups.on_put(first, Answer.STORED)
    assert list(groups.take_committed()) == []
