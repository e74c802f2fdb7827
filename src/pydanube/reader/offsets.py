"""
Where a query stands in its topics, as Spark's checkpoint keeps it.

Spark compares two such values by their JSON *text*, so what is written here has
its keys sorted and one form only: ``{"/default/orders": {"id": 7, "offset":
120}, "version": 1}``.  The topic's id tells a topic from one that was created
again under its name.  A query that decodes has ``"values"`` besides: the version of
which subject its values are read as.  Everything on this page is pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube.reader.bounds import EARLIEST, LATEST, split_name, wanted
from pydanube.reader.scans import TAIL_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydanube.reader.bounds import Bound

VERSION = 1
VALUES = "values"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in one topic: the next offset to read."""

    topic_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Head:
    """What a topic consists of at the moment: messages ``base … end``."""

    topic_id: int
    base: int
    end: int
    sealed: int | None = None
    """What is older is in segments; None if nobody asked."""
    message_bytes: int = TAIL_MESSAGE_BYTES
    """About how large a message of the tail is."""

    def without_tail(self) -> Head:
        """The same as if there was nothing but segments."""
        sealed = self.end if self.sealed is None else self.sealed
        return replace(self, end=max(self.base, sealed))


Positions = dict[str, Position]
"""By topic, in the order of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The version of a subject whose columns the values of messages have."""

    subject: str
    schema_id: int
    """Tells a subject from one that was created again under its name."""
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.subject}"


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that were to be read and are not there any more."""

    topic: str
    base: int
    end: int | None
    """None if nobody can say how many they were."""
    reason: str
    resume: Position | None
    """Where reading can go on; None if there is nothing to read."""

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
    """*positions* in the one form that Spark may see."""
    topics: dict[str, Any] = {
        topic: {"id": position.topic_id, "offset": position.offset}
        for topic, position in sorted(positions.items())
    }
    # Topic names begin with a slash, so these never meet one.
    if reader_schema is not None:
        topics[VALUES] = {
            "id": reader_schema.schema_id,
            "subject": reader_schema.subject,
            "version": reader_schema.version,
        }
    return {**topics, "version": VERSION}


def from_json(value: Mapping[str, Any]) -> Positions:
    """
    The positions that a checkpoint holds.

    Raises:
        InvalidConfig: They were not written by us, or by a newer version.
    """
    if value.get("version") != VERSION:
        raise InvalidConfig(
            f"the checkpoint holds offsets of version {value.get('version')!r}; this "
            f"version of pydanube reads version {VERSION}"
        )
    return {
        topic: Position(int(entry["id"]), int(entry["offset"]))
        for topic, entry in sorted(value.items())
        if topic.startswith("/")
    }


def reader_schema_in(value: Mapping[str, Any]) -> ReaderSchema | None:
    """What a checkpoint says that values are read as; None if they are not."""
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
    option: str,
    find: Callable[[str, int], int | None],
) -> Positions:
    """
    The positions that *bound* means for topics that stand at *heads*.

    *find* says which message of a topic was the first to be published at a time or
    later.

    Raises:
        InvalidConfig: An offset or time is given for a topic that is not read, or
            none for one that is, or one that the topic has not reached yet.
    """
    positions = {}
    for topic, value in wanted(bound, heads, option).items():
        head = heads[topic]
        if bound.is_time:
            offset = _offset_at(bound, topic, head, option, find(topic, value))
        else:
            offset = _offset(value, topic, head, option)
        positions[topic] = Position(head.topic_id, offset)
    return positions


def _offset(value: int, topic: str, head: Head, option: str) -> int:
    if value == EARLIEST:
        return head.base
    if value == LATEST:
        return head.end
    if value > head.end:
        raise InvalidConfig(
            f"{option}: {topic} ends at {head.end}, so {value} is not there yet"
        )
    return value


def _offset_at(
    bound: Bound, topic: str, head: Head, option: str, found: int | None
) -> int:
    if found is not None:
        return found
    if not bound.may_be_later:
        raise InvalidConfig(
            f"{option}: {topic} has no message that was published then or later; with "
            "startingOffsetsByTimestampStrategy=latest it is read from its end on"
        )
    return head.end


def losses(
    start: Mapping[str, Position],
    heads: Mapping[str, Head],
    stop: Mapping[str, Position] | None = None,
) -> list[Loss]:
    """
    What was to be read from *start* on and is gone from topics at *heads*.

    *stop* is where the read was to end, where that is known.
    """
    found = []
    for topic, position in sorted(start.items()):
        head = heads.get(topic)
        base = position.offset
        until = None if stop is None or topic not in stop else stop[topic].offset
        if head is None:
            reason = "are gone: the topic is deleted"
            found.append(Loss(topic, base, until, reason, None))
        elif head.topic_id != position.topic_id:
            reason = (
                "are gone: the topic was deleted and created again (its id was "
                f"{position.topic_id} and is {head.topic_id})"
            )
            resume = Position(head.topic_id, head.base)
            found.append(Loss(topic, base, until, reason, resume))
        elif base < head.base:
            resume = Position(head.topic_id, head.base)
            reason = (
                "were dropped by retention before they were read; the first that is "
                f"still there is {head.base}"
            )
            end = head.base if until is None else min(head.base, max(base, until))
            found.append(Loss(topic, base, end, reason, resume))
        elif base > head.end:
            resume = Position(head.topic_id, head.end)
            reason = (
                f"were there before, but the topic ends at {head.end} now: the broker "
                "lost them or was restored from an older copy"
            )
            found.append(Loss(topic, head.end, base, reason, resume))
    return found


def refuse(found: Iterable[Loss]) -> None:
    """
    Say exactly what is lost.

    Raises:
        TopicNotFound: All that is wrong is that topics are deleted.
        OffsetDropped: Messages are gone.
    """
    found = list(found)
    if not found:
        return
    report = "; ".join(map(str, found))
    hint = (
        "Set failOnDataLoss=false to go on with what is there, or begin with a new "
        "checkpoint. Longer retention, or a query that keeps up, prevents it."
    )
    error = (
        TopicNotFound if all(loss.resume is None for loss in found) else OffsetDropped
    )
    raise error(f"{report}. {hint}")


def skip(start: Mapping[str, Position], found: Iterable[Loss]) -> Positions:
    """*start*, moved to where reading can go on after the losses *found*."""
    moved = {loss.topic: loss.resume for loss in found if loss.resume is not None}
    return {topic: moved.get(topic, at) for topic, at in sorted(start.items())}


def join(start: Mapping[str, Position], heads: Mapping[str, Head]) -> Positions:
    """*start*, and the beginning of every topic that it does not know yet."""
    new = {
        topic: Position(head.topic_id, head.base)
        for topic, head in heads.items()
        if topic not in start
    }
    return dict(sorted({**start, **new}.items()))


def advance(
    start: Mapping[str, Position],
    heads: Mapping[str, Head],
    *,
    rows_max: int | None = None,
) -> Positions:
    """
    How far a micro-batch goes that begins at *start*: to *heads*, or less.

    Bounds: With *rows_max* as ``within_rows``.  Never backwards, and topics that are
        gone stay where they are.
    """
    end = {
        topic: replace(at, offset=at.offset + _waiting(at, heads.get(topic)))
        for topic, at in sorted(start.items())
    }
    return end if rows_max is None else within_rows(start, end, rows_max)


def within_rows(
    start: Mapping[str, Position], end: Mapping[str, Position], rows_max: int
) -> Positions:
    """
    *end*, or less of it, so that ``start … end`` has at most *rows_max* messages.

    Bounds: Exactly so many, if there are as many, shared out in proportion to what
        each topic has waiting, so that no topic starves.
    """
    taken = share_out(
        {topic: at.offset - start[topic].offset for topic, at in end.items()}, rows_max
    )
    return {
        topic: replace(at, offset=start[topic].offset + taken[topic])
        for topic, at in end.items()
    }


def _waiting(position: Position, head: Head | None) -> int:
    if head is None or head.topic_id != position.topic_id:
        return 0
    return max(0, head.end - position.offset)


def share_out(waiting: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """
    *rows_max* shared out over the topics in proportion to what each has waiting.

    The parts that rounding leaves go to the largest remainders, ties to the
    first name, so that the same input always gives the same answer.
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
