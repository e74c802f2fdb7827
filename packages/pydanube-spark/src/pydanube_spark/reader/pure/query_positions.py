"""
The positions of a query in its topics, as Spark's checkpoint stores them.

Spark compares positions by their JSON *text*, so they have only one form, with sorted
keys: ``{"/default/plain": {"id": 7, "offset": 120}, "version": 1}``.  The id
distinguishes a topic from one that was deleted and created again with the same name.
Partitions are written as ranges, because a topic may have thousands of them:
``{"/default/orders": {"ids": {"0-3": 8}, "offsets": {"0-1": 120, "2-3": 119}}}``.
Their ids rise by one from partition to partition, and their offsets are the same.
The key ``"values"`` has the reader schema of a query that decodes values.  Everything
in this module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube_spark.reader.pure.bounds import EARLIEST, LATEST, Bound, split_name
from pydanube_spark.reader.pure.scans import TAIL_MESSAGE_BYTES

VERSION = 1
PARTITIONS_MAX = 1_000_000
"""The most partitions in one range of a checkpoint."""
VALUES = "values"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in one topic: the next offset to read."""

    topic_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Head:
    """The messages ``base … end`` that a topic has at the moment."""

    topic_id: int
    base: int
    end: int
    sealed: int | None = None
    """The end of the last segment; None if unknown."""
    message_bytes: int = TAIL_MESSAGE_BYTES
    """The estimated size of a message in the tail."""

    def without_tail(self) -> Head:
        """Return the head with the segments only."""
        sealed = self.end if self.sealed is None else self.sealed
        return replace(self, end=max(self.base, sealed))


Positions = dict[str, Position]
"""By topic, sorted by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The version of a subject to which values are converted."""

    subject: str
    schema_id: int
    """Distinguishes a subject from one that was created again with the same name."""
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.subject}"


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that cannot be read any more."""

    topic: str
    base: int
    end: int | None
    """None if their number is unknown."""
    reason: str
    resume: Position | None
    """Where reading can continue; None if there is nothing to read."""

    def __str__(self) -> str:
        name, number = split_name(self.topic)
        which = self.topic if name == self.topic else f"{name}, partition {number}"
        if self.end is None:
            return f"{which}: messages from {self.base} on {self.reason}"
        return (
            f"{which}: messages {self.base} … {self.end} ({self.end - self.base}, the "
            f"last is {self.end - 1}) {self.reason}"
        )


def to_json(
    positions: Mapping[str, Position], reader_schema: ReaderSchema | None = None
) -> dict[str, Any]:
    """Return *positions* in the form that the checkpoint stores."""
    topics: dict[str, Any] = {}
    partitions: dict[str, dict[int, Position]] = {}
    for topic, position in positions.items():
        base, number = split_name(topic)
        if base == topic:
            topics[topic] = {"id": position.topic_id, "offset": position.offset}
        else:
            partitions.setdefault(base, {})[number] = position
    for base, each in partitions.items():
        numbers = sorted(each)
        ids = [each[number].topic_id for number in numbers]
        offsets = [each[number].offset for number in numbers]
        # A topic may have the name of a partitioned topic that was deleted.
        topics.setdefault(base, {}).update(
            ids=_ranges_of(numbers, ids, 1), offsets=_ranges_of(numbers, offsets, 0)
        )
    topics = dict(sorted(topics.items()))
    # Topic names begin with a slash, so no topic is called "values" or "version".
    if reader_schema is not None:
        topics[VALUES] = {
            "id": reader_schema.schema_id,
            "subject": reader_schema.subject,
            "version": reader_schema.version,
        }
    return {**topics, "version": VERSION}


def _ranges_of(
    numbers: Sequence[int], values: Sequence[int], step: int
) -> dict[str, int]:
    """Return the first value of each range of *numbers* whose values rise by *step*."""
    found: dict[str, int] = {}
    first = 0
    for at in range(1, len(numbers) + 1):
        if (
            at < len(numbers)
            and numbers[at] == numbers[at - 1] + 1
            and values[at] == values[at - 1] + step
        ):
            continue
        name = str(numbers[first])
        if at - first > 1:
            name += f"-{numbers[at - 1]}"
        found[name] = values[first]
        first = at
    return found


def from_json(value: Mapping[str, Any]) -> Positions:
    """
    Return the positions of a checkpoint.

    Raises:
        InvalidConfig: Another source or a newer version of pydanube wrote them.
    """
    if value.get("version") != VERSION:
        raise InvalidConfig(
            f"the checkpoint has offsets of format version {value.get('version')!r}; "
            f"this version of pydanube reads format version {VERSION}"
        )
    positions = {}
    for topic, entry in value.items():
        if not topic.startswith("/"):
            continue
        if "id" in entry:
            positions[topic] = Position(int(entry["id"]), int(entry["offset"]))
        if "ids" in entry:
            ids = _numbers_in(topic, entry["ids"], 1)
            offsets = _numbers_in(topic, entry["offsets"], 0)
            for number, topic_id in ids.items():
                name = f"{topic}-part-{number}"
                positions[name] = Position(topic_id, offsets[number])
    return dict(sorted(positions.items()))


def _numbers_in(topic: str, ranges: Mapping[str, int], step: int) -> dict[int, int]:
    """Return the value of each partition of *topic* in *ranges*."""
    found: dict[int, int] = {}
    for name, value in ranges.items():
        first, _, last = name.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if len(numbers) > PARTITIONS_MAX:
            raise InvalidConfig(
                f"the checkpoint has offsets of the partitions {name} of {topic}; a "
                f"topic has at most {PARTITIONS_MAX} partitions"
            )
        found |= {number: value + step * at for at, number in enumerate(numbers)}
    return found


def reader_schema_in(value: Mapping[str, Any]) -> ReaderSchema | None:
    """Return the reader schema of a checkpoint, or None if it has none."""
    entry = value.get(VALUES)
    if entry is None:
        return None
    return ReaderSchema(
        subject=str(entry["subject"]),
        schema_id=int(entry["id"]),
        version=int(entry["version"]),
    )


def resolve(
    bound: Bound,
    heads: Mapping[str, Head],
    find: Callable[[str, int], int | None],
) -> Positions:
    """
    Return the positions of *bound* in the topics of *heads*.

    *find* returns the first message of a topic that was published at a time or later.

    Raises:
        InvalidConfig: *bound* names a topic that is not read, omits one that is, or
            has an offset or time after a topic's end.
    """
    positions = {}
    for topic, value in bound.numbers_for(heads).items():
        head = heads[topic]
        if bound.is_time:
            found = find(topic, value)
            if found is None and not bound.allows_future:
                raise InvalidConfig(
                    f"{bound.option}: {topic} has no message that was published then "
                    "or later; set startingOffsetsByTimestampStrategy=latest to start "
                    "at its end"
                )
            offset = head.end if found is None else found
        else:
            offset = {EARLIEST: head.base, LATEST: head.end}.get(value, value)
            if offset > head.end:
                raise InvalidConfig(
                    f"{bound.option}: {topic} ends at offset {head.end}, which is "
                    f"before {offset}"
                )
        positions[topic] = Position(head.topic_id, offset)
    return positions


def find_losses(start: Mapping[str, Position], heads: Mapping[str, Head]) -> list[Loss]:
    """Return the messages after *start* that the topics at *heads* no longer have."""
    found = (
        find_loss(topic, position, heads.get(topic))
        for topic, position in start.items()
    )
    return [loss for loss in found if loss is not None]


def find_loss(
    topic: str, position: Position, head: Head | None, until: int | None = None
) -> Loss | None:
    """
    Return the messages after *position* that the topic at *head* no longer has.

    *head* is None if the topic is deleted.  *until* is the planned end of the read, if
    it is known.
    """
    base = position.offset
    if head is None:
        return Loss(topic, base, until, "are gone: the topic is deleted", None)
    is_same = head.topic_id == position.topic_id
    if is_same and head.base <= base <= head.end:
        return None
    resume = Position(head.topic_id, head.base)
    if not is_same:
        reason = (
            "are gone: the topic was deleted and created again (its id was "
            f"{position.topic_id} and is {head.topic_id})"
        )
        return Loss(topic, base, until, reason, resume)
    if base < head.base:
        reason = (
            "were dropped by retention before they were read; the first message left "
            f"is {head.base}"
        )
        end = head.base if until is None else min(head.base, max(base, until))
        return Loss(topic, base, end, reason, resume)
    reason = (
        f"are gone: the topic ends at {head.end} now; the broker lost them or was "
        "restored from an older copy"
    )
    return Loss(topic, head.end, base, reason, replace(resume, offset=head.end))


def raise_losses(found: Iterable[Loss]) -> None:
    """
    Raise an error that lists *found*, if there is a loss.

    Raises:
        TopicNotFound: All losses are deleted topics.
        OffsetDropped: Messages are gone.
    """
    found = list(found)
    if not found:
        return
    report = "; ".join(map(str, found))
    hint = (
        "Set failOnDataLoss=false to continue with the messages that are left, or "
        "start with a new checkpoint. Longer retention or a faster query prevents this."
    )
    error = (
        TopicNotFound if all(loss.resume is None for loss in found) else OffsetDropped
    )
    raise error(f"{report}. {hint}")


def skip_losses(start: Mapping[str, Position], found: Iterable[Loss]) -> Positions:
    """Move *start* to where reading can continue after the losses *found*."""
    moved = {loss.topic: loss.resume for loss in found if loss.resume is not None}
    return {topic: moved.get(topic, at) for topic, at in start.items()}


def add_topics(start: Mapping[str, Position], heads: Mapping[str, Head]) -> Positions:
    """Add the beginning of every topic of *heads* that *start* does not have."""
    new = {
        topic: Position(head.topic_id, head.base)
        for topic, head in heads.items()
        if topic not in start
    }
    return dict(sorted({**start, **new}.items())) if new else dict(start)


def advance(start: Mapping[str, Position], heads: Mapping[str, Head]) -> Positions:
    """
    Return the end of a micro-batch that begins at *start*: *heads* at most.

    Bounds: No position moves backwards; the positions of topics that are gone do not
        change.
    """
    end = {}
    for topic, at in start.items():
        head = heads.get(topic)
        is_same = head is not None and head.topic_id == at.topic_id
        if head is not None and is_same and head.end > at.offset:
            end[topic] = Position(at.topic_id, head.end)
        else:
            end[topic] = at
    return end


def within_rows(
    start: Mapping[str, Position], end: Mapping[str, Position], rows_max: int
) -> Positions:
    """
    Reduce *end* so that ``start … end`` has at most *rows_max* messages.

    Bounds: Exactly *rows_max* if there are as many, divided in proportion to what each
        topic has waiting, so that no topic starves.
    """
    taken = share(
        {topic: at.offset - start[topic].offset for topic, at in end.items()}, rows_max
    )
    return {
        topic: replace(at, offset=start[topic].offset + taken[topic])
        for topic, at in end.items()
    }


def share(waiting: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """
    Divide *rows_max* among the topics in proportion to what each has waiting.

    The result is deterministic: units that rounding leaves go to the largest
    remainders, and ties to the first name.
    """
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(waiting)
    shares = {topic: rows_max * count // total for topic, count in waiting.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(
        waiting, key=lambda topic: (-(rows_max * waiting[topic] % total), topic)
    )
    for topic in by_remainder[:left]:
        shares[topic] += 1
    return shares
