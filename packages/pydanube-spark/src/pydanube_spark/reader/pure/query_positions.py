"""
The positions of a query in its topics, as Spark's checkpoint stores them.

Spark compares positions by their JSON *text*, so they have only one form, with sorted
keys: ``{"/default/orders": {"id": 7, "offset": 120}, "version": 1}``.  The id
distinguishes a topic from one that was deleted and created again with the same name.
The key ``"values"`` has the reader schema of a query that decodes values.  Everything
in this module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube_spark.reader.pure.bounds import EARLIEST, LATEST, Bound, split_name
from pydanube_spark.reader.pure.scans import TAIL_MESSAGE_BYTES

VERSION = 1
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
    topics: dict[str, Any] = {
        topic: {"id": position.topic_id, "offset": position.offset}
        for topic, position in sorted(positions.items())
    }
    # Topic names begin with a slash, so no topic is called "values" or "version".
    if reader_schema is not None:
        topics[VALUES] = {
            "id": reader_schema.schema_id,
            "subject": reader_schema.subject,
            "version": reader_schema.version,
        }
    return {**topics, "version": VERSION}


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
    return {
        topic: Position(int(entry["id"]), int(entry["offset"]))
        for topic, entry in sorted(value.items())
        if topic.startswith("/")
    }


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
        for topic, position in sorted(start.items())
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
    resume = Position(head.topic_id, head.base)
    if head.topic_id != position.topic_id:
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
    if base > head.end:
        reason = (
            f"are gone: the topic ends at {head.end} now; the broker lost them or was "
            "restored from an older copy"
        )
        return Loss(topic, head.end, base, reason, replace(resume, offset=head.end))
    return None


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
    return {topic: moved.get(topic, at) for topic, at in sorted(start.items())}


def add_topics(start: Mapping[str, Position], heads: Mapping[str, Head]) -> Positions:
    """Add the beginning of every topic of *heads* that *start* does not have."""
    new = {
        topic: Position(head.topic_id, head.base)
        for topic, head in heads.items()
        if topic not in start
    }
    return dict(sorted({**start, **new}.items()))


def advance(start: Mapping[str, Position], heads: Mapping[str, Head]) -> Positions:
    """
    Return the end of a micro-batch that begins at *start*: *heads* at most.

    Bounds: No position moves backwards; the positions of topics that are gone do not
        change.
    """
    end = {}
    for topic, at in sorted(start.items()):
        head = heads.get(topic)
        end[topic] = at
        if head is not None and head.topic_id == at.topic_id:
            end[topic] = replace(at, offset=max(at.offset, head.end))
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
