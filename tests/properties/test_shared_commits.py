"""
Commits of a cluster publish everything once, in every interleaving.

A model explores all states of a query's record, two brokers that decide its commits,
the owners of two topics, which may be taken over, and two brokers that drop parts.
The changes of the record are those of ``shared_decisions``.  Each rule is left out
once, and then the model must find a broken promise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from pydanube_broker.broker.pure.shared_decisions import (
    answer_of,
    commit_id_after,
    decided,
    dropping,
    is_complete,
    mark_done,
    may_drop,
)
from pydanube_broker.metadata.records import (
    QueryRecord,
    StagedTopicRecord,
    StagingDecision,
)

TOPICS = (0, 1)
SPARE = 2
"""A part that no commit names."""
COMMITTED, REFUSED = "committed", "refused"


@dataclass(frozen=True)
class Bounds:
    """How much happens at most."""

    versions: int = 1
    messages: int = 1
    """The number of messages of each version in each topic."""
    takeovers: int = 1
    droppers: int = 0
    deciders: int = 2


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol; the model can leave out any of them."""

    compares_the_record_to_decide: bool = True
    compares_the_record_to_mark: bool = True
    waits_for_the_pending_commit: bool = True
    answers_repeated_commits: bool = True
    looks_again_if_a_part_is_missing: bool = True
    skips_what_is_appended: bool = True
    counts_only_the_same_commit: bool = True
    marks_what_is_committed: bool = True
    fences_the_earlier_owner: bool = True
    reads_the_record_while_it_serves: bool = True
    removes_parts_at_the_end: bool = True
    names_parts_before_dropping: bool = True
    finishes_what_others_drop: bool = True
    keeps_the_parts_of_a_decision: bool = True


class Broken(AssertionError):
    """The protocol broke a promise."""


class Message(NamedTuple):
    """A message in a journal, and which commit has appended it."""

    version: int
    number: int
    commit_id: int
    sequence: int


class Topic(NamedTuple):
    """A topic: its journal, and what its owner has appended and not committed."""

    epoch: int = 0
    journal: tuple[Message, ...] = ()
    in_flight: tuple[Message, ...] = ()
    of_earlier: tuple[Message, ...] = ()
    """What the earlier owner has appended and not committed."""
    is_forgotten: bool = False
    """Whether the owner has forgotten the producer of the last commit."""

    @property
    def all(self):
        return self.journal + self.in_flight


class Decider(NamedTuple):
    """A broker that handles a request to commit."""

    step: str = "idle"
    version: int = 0
    record: QueryRecord = QueryRecord()
    revision: int = 0
    own_id: int | None = None
    asked: int = 0
    """The highest version that it was asked to commit."""


class Owner(NamedTuple):
    """One owner of a topic, and its progress with a commit."""

    topic: int
    epoch: int
    step: str = "idle"
    commit_id: int = 0
    version: int = 0
    record: QueryRecord = QueryRecord()
    revision: int = 0


class Dropper(NamedTuple):
    """A broker that drops parts of version 1."""

    parts: tuple[str, ...]
    step: str = "look"
    record: QueryRecord = QueryRecord()
    revision: int = 0


@dataclass(frozen=True)
class World:
    """One state of the cluster."""

    record: QueryRecord
    revision: int
    parts: frozenset[str]
    """The parts in the object store: their version and topic."""
    topics: tuple[Topic, ...]
    deciders: tuple[Decider, ...]
    owners: tuple[Owner, ...]
    droppers: tuple[Dropper, ...]
    told: frozenset[tuple[int, str]]
    takeovers: int


def part(version, topic):
    return f"{version}/{topic}"


def parts_of(version):
    """The parts that a commit of *version* names."""
    return tuple(part(version, topic) for topic in TOPICS)


def change(items, at, **changes):
    return (*items[:at], items[at]._replace(**changes), *items[at + 1 :])


class Model:
    """What may happen next, under some rules and within bounds."""

    def __init__(self, rules, bounds):
        self.rules = rules
        self.bounds = bounds

    def start(self):
        versions = range(1, self.bounds.versions + 1)
        return World(
            record=QueryRecord(),
            revision=0,
            parts=frozenset(part(v, t) for v in versions for t in (*TOPICS, SPARE)),
            topics=tuple(Topic() for _ in TOPICS),
            deciders=tuple(Decider() for _ in range(self.bounds.deciders)),
            owners=tuple(Owner(topic, 0) for topic in TOPICS),
            droppers=(Dropper((part(1, SPARE),)), Dropper(parts_of(1)))[
                : self.bounds.droppers
            ],
            told=frozenset(),
            takeovers=0,
        )

    def following(self, world):
        for at in range(len(world.deciders)):
            yield from self.decider_steps(world, at)
        for at in range(len(world.owners)):
            yield from self.owner_steps(world, at)
        for at in TOPICS:
            yield from self.topic_steps(world, at)
        for at in range(len(world.droppers)):
            yield from self.dropper_steps(world, at)

    def write(self, world, record, expected, *, compares):
        """The world after a write, or None if the record has changed."""
        if compares and world.revision != expected:
            return None
        return replace(world, record=record, revision=world.revision + 1)

    # Deciding.

    def decider_steps(self, world, at):
        decider = world.deciders[at]

        def to(world, **changes):
            return replace(world, deciders=change(world.deciders, at, **changes))

        match decider.step:
            case "idle":
                version = decider.asked + 1
                is_first = version == 1 or (version - 1, COMMITTED) in world.told
                if version <= self.bounds.versions and is_first:
                    yield to(
                        world, step="look", version=version, asked=version, own_id=None
                    )
            case "look":
                yield from self.look(world, decider, to)
            case "verify":
                needed = set(parts_of(decider.version))
                if needed <= world.parts - set(decider.record.dropping):
                    yield to(world, step="write")
                elif (
                    self.rules.looks_again_if_a_part_is_missing
                    and world.revision != decider.revision
                ):
                    yield to(world, step="look")
                else:
                    yield self.tell(to(world, step="idle"), decider.version, REFUSED)
            case "write":
                decision = self.decision(decider)
                record = decided(
                    QueryRecord(
                        **{
                            name: getattr(decider.record, name)
                            for name in decider.record.__struct_fields__
                            if name != "decision"
                        }
                    ),
                    decision,
                    0,
                )
                after = self.write(
                    world,
                    record,
                    decider.revision,
                    compares=self.rules.compares_the_record_to_decide,
                )
                if after is None:
                    yield to(world, step="look")
                else:
                    yield to(after, step="look", own_id=decision.commit_id)

    def look(self, world, decider, to):
        record = world.record
        if record.decision is not None and self.rules.waits_for_the_pending_commit:
            return
        answer = answer_of("q", record, decider.version, decider.own_id)
        if not self.rules.answers_repeated_commits and decider.own_id is None:
            answer = None
        if answer is not None:
            yield self.tell(to(world, step="idle"), decider.version, COMMITTED)
        else:
            yield to(world, step="verify", record=record, revision=world.revision)

    def decision(self, decider):
        return StagingDecision(
            version=decider.version,
            # The revision is the time.
            commit_id=commit_id_after(decider.record, decider.revision + 1),
            parts=(),
            topics=tuple(
                StagedTopicRecord(
                    topic_id=topic, name="", message_count=self.bounds.messages
                )
                for topic in TOPICS
            ),
        )

    def tell(self, world, version, outcome):
        return replace(world, told=world.told | {(version, outcome)})

    # Carrying out.

    def owner_steps(self, world, at):
        owner = world.owners[at]
        topic = world.topics[owner.topic]
        is_present = owner.epoch == topic.epoch

        def to(world, **changes):
            return replace(world, owners=change(world.owners, at, **changes))

        decision = world.record.decision
        match owner.step:
            case "idle" if is_present and decision is not None:
                if not decision.topics[owner.topic].is_done:
                    self.check_part(world, decision, owner.topic)
                    yield to(world, step="read", record=world.record)
            case "read" if is_present:
                decision = owner.record.decision
                if part(decision.version, owner.topic) not in world.parts:
                    yield to(world, step="idle")
                    return
                new = self.missing(decision, topic)
                topics = change(
                    world.topics,
                    owner.topic,
                    in_flight=topic.in_flight + tuple(new),
                    is_forgotten=False,
                )
                yield to(
                    replace(world, topics=topics),
                    step="appended",
                    commit_id=decision.commit_id,
                    version=decision.version,
                )
            case "appended":
                # The outcome of what a fence has cut off stays unknown.
                is_committed = is_present and not topic.in_flight
                if is_committed or not self.rules.marks_what_is_committed:
                    yield to(world, step="mark")
            case "mark":
                yield to(
                    world, step="write", record=world.record, revision=world.revision
                )
            case "write":
                yield from self.mark(world, owner, to)
            case "forget":
                topics = world.topics
                if is_present:
                    topics = change(topics, owner.topic, is_forgotten=True)
                yield to(replace(world, topics=topics), step="idle")
            case "remove":
                kept = {each for each in world.parts if int(each[0]) > owner.version}
                yield to(replace(world, parts=frozenset(kept)), step="forget")

    def missing(self, decision, topic):
        """The messages that the owner appends."""
        known = topic.all[-1] if topic.all and not topic.is_forgotten else None
        appended = 0
        if known is not None and self.rules.skips_what_is_appended:
            is_same = known.commit_id == decision.commit_id
            if is_same or not self.rules.counts_only_the_same_commit:
                appended = known.sequence + 1
        for number in range(appended, self.bounds.messages):
            yield Message(decision.version, number, decision.commit_id, number)

    def mark(self, world, owner, to):
        record = mark_done(owner.record, owner.commit_id, {owner.topic}, 0)
        is_over = record == owner.record
        after = world
        if not is_over:
            after = self.write(
                world,
                record,
                owner.revision,
                compares=self.rules.compares_the_record_to_mark,
            )
        if after is None:
            yield to(world, step="mark")
        elif not is_over and (
            record.decision is None or not self.rules.removes_parts_at_the_end
        ):
            yield to(after, step="remove")
        else:
            yield to(after, step="idle" if is_over else "forget")

    # Journals.

    def topic_steps(self, world, at):
        topic = world.topics[at]
        if topic.in_flight:
            first, *rest = topic.in_flight
            yield self.with_topic(
                world, at, journal=(*topic.journal, first), in_flight=tuple(rest)
            )
        if topic.of_earlier and not self.rules.fences_the_earlier_owner:
            first, *rest = topic.of_earlier
            yield self.with_topic(
                world, at, journal=(*topic.journal, first), of_earlier=tuple(rest)
            )
        if world.takeovers < self.bounds.takeovers:
            taken = self.with_topic(
                world,
                at,
                epoch=topic.epoch + 1,
                in_flight=(),
                of_earlier=topic.in_flight,
            )
            owners = world.owners
            if not self.find_next(world, at):
                owners = (*owners, Owner(at, topic.epoch + 1))
            yield replace(taken, takeovers=world.takeovers + 1, owners=owners)
            if not self.rules.reads_the_record_while_it_serves:
                yield from self.read_early(world, at)

    def find_next(self, world, at):
        """The next owner of a topic, if it has read the record already."""
        epoch = world.topics[at].epoch + 1
        return [
            each for each in world.owners if (each.topic, each.epoch) == (at, epoch)
        ]

    def read_early(self, world, at):
        """Let the next owner read the record before it serves the topic."""
        decision = world.record.decision
        if decision is None or decision.topics[at].is_done or self.find_next(world, at):
            return
        early = Owner(at, world.topics[at].epoch + 1, step="read", record=world.record)
        yield replace(world, owners=(*world.owners, early))

    def with_topic(self, world, at, **changes):
        return replace(world, topics=change(world.topics, at, **changes))

    # Dropping parts of version 1.

    def dropper_steps(self, world, at):
        dropper = world.droppers[at]

        def to(world, **changes):
            return replace(world, droppers=change(world.droppers, at, **changes))

        def without(names):
            return replace(world, parts=world.parts - set(names))

        match dropper.step:
            case "look":
                record = world.record
                must_keep = not may_drop(record, 1)
                if must_keep and self.rules.keeps_the_parts_of_a_decision:
                    yield to(world, step="over")
                elif (
                    is_complete(record, 1) or not self.rules.names_parts_before_dropping
                ):
                    yield to(world, step="remove")
                else:
                    yield to(
                        world, step="finish", record=record, revision=world.revision
                    )
            case "finish":
                others = dropper.record.dropping
                if not self.rules.finishes_what_others_drop:
                    others = ()
                yield to(without(others), step="write")
            case "write":
                record = dropping(dropper.record, dropper.parts, 0)
                after = self.write(world, record, dropper.revision, compares=True)
                if after is None:
                    yield to(world, step="look")
                else:
                    yield to(after, step="remove")
            case "remove":
                yield to(without(dropper.parts), step="over")

    # The promises.

    def check(self, world):
        for topic in world.topics:
            found = [(each.version, each.number) for each in topic.journal]
            if sorted(set(found)) != found:
                raise Broken(f"twice, or out of order: {found}")
        record = world.record
        complete = {version for version, how in world.told if how == COMMITTED}
        complete |= set(range(1, (record.version or 0) + 1))
        for version in complete:
            for topic in world.topics:
                count = sum(each.version == version for each in topic.journal)
                if count < self.bounds.messages:
                    raise Broken(f"version {version} is committed and not published")
        for version, how in world.told:
            if how == REFUSED and version in self.published(world):
                raise Broken(f"version {version} is refused and committed")
        if record.decision is not None:
            for topic in record.decision.topics:
                if not topic.is_done:
                    self.check_part(world, record.decision, topic.topic_id)

    def published(self, world):
        found = {each.version for topic in world.topics for each in topic.all}
        if world.record.decision is not None:
            found.add(world.record.decision.version)
        return found

    def check_part(self, world, decision, topic):
        if part(decision.version, topic) not in world.parts:
            raise Broken(f"version {decision.version} is decided, and has no part")


def explore(rules=Rules(), bounds=Bounds()):
    """Visit every state; return their number, and what clients were told."""
    model = Model(rules, bounds)
    start = model.start()
    seen, stack, told = {start}, [start], set()
    while stack:
        world = stack.pop()
        told |= world.told
        for after in model.following(world):
            if after not in seen:
                model.check(after)
                seen.add(after)
                stack.append(after)
    return len(seen), told


ALL_BOUNDS = {
    "one version, two messages": Bounds(messages=2),
    "one version that is dropped": Bounds(droppers=2, takeovers=0),
    "two versions": Bounds(versions=2, deciders=1),
}


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("bounds", ALL_BOUNDS.values(), ids=ALL_BOUNDS)
def test_every_interleaving_keeps_the_promises(bounds):
    states, told = explore(bounds=bounds)
    assert states > 500
    assert (bounds.versions, COMMITTED) in told
    assert ((1, REFUSED) in told) == bool(bounds.droppers)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(Rules.__dataclass_fields__))
def test_model_finds_the_broken_promise_if_a_rule_is_left_out(rule):
    with pytest.raises(Broken):
        explore_all(Rules(**{rule: False}))


def explore_all(rules):
    for bounds in ALL_BOUNDS.values():
        explore(rules, bounds)
