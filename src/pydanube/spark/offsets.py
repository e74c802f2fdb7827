"""
Where a query stands in its topics, as Spark's checkpoint keeps it.

Spark compares two such values by their JSON *text*, so what is written here has
its keys sorted and one form only: ``{"/default/orders": {"id": 7, "offset":
120}, "version": 1}``.  The topic's id tells a topic from one that was created
again under its name.  A query that decodes has ``"values"`` besides: the version of
which subject its values are read as.  Everything on this page is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube.spark.options import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydanube.spark.options import Bound

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


Positions = dict[str, Position]
"""By topic, in the order of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAs:
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
        end = "?" if self.end is None else self.end
        return f"{self.topic}: messages {self.base} … {end} {self.reason}"


def to_json(
    positions: Mapping[str, Position], read_as: ReadAs | None = None
) -> dict[str, Any]:
    """*positions* in the one form that Spark may see."""
    topics: dict[str, Any] = {
        topic: {"id": position.topic_id, "offset": position.offset}
        for topic, position in sorted(positions.items())
    }
    # Topic names begin with a slash, so these never meet one.
    if read_as is not None:
        topics[VALUES] = {
            "id": read_as.schema_id,
            "subject": read_as.subject,
            "version": read_as.version,
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


def read_as_in(value: Mapping[str, Any]) -> ReadAs | None:
    """What a checkpoint says that values are read as; None if they are not."""
    entry = value.get(VALUES)
    if entry is None:
        return None
    return ReadAs(
        subject=str(entry["subject"]),
        schema_id=int(entry["id"]),
        version=int(entry["version"]),
    )


def resolve(bound: Bound, heads: Mapping[str, Head], name: str) -> Positions:
    """
    The positions that *bound* means for topics that stand at *heads*.

    Raises:
        InvalidConfig: An offset is given for a topic that is not read, or none
            for one that is, or one that the topic has not reached yet.
    """
    if bound.by_topic and set(bound.by_topic) != set(heads):
        extra = sorted(set(bound.by_topic) - set(heads))
        missing = sorted(set(heads) - set(bound.by_topic))
        raise InvalidConfig(
            f"{name}: must name exactly the topics that are read"
            + (f"; not read: {', '.join(extra)}" if extra else "")
            + (f"; missing: {', '.join(missing)}" if missing else "")
        )
    positions = {}
    for topic, head in sorted(heads.items()):
        match bound.by_topic.get(topic, bound.offset):
            case offset if offset == EARLIEST:
                offset = head.base
            case offset if offset == LATEST:
                offset = head.end
            case offset if offset > head.end:
                raise InvalidConfig(
                    f"{name}: {topic} ends at {head.end}, so {offset} is not there yet"
                )
        positions[topic] = Position(head.topic_id, offset)
    return positions


def losses(start: Mapping[str, Position], heads: Mapping[str, Head]) -> list[Loss]:
    """What was to be read from *start* on and is gone from topics at *heads*."""
    found = []
    for topic, position in sorted(start.items()):
        head = heads.get(topic)
        if head is None:
            found.append(
                Loss(
                    topic, position.offset, None, "are gone: the topic is deleted", None
                )
            )
        elif head.topic_id != position.topic_id:
            reason = (
                "are gone: the topic was deleted and created again (its id was "
                f"{position.topic_id} and is {head.topic_id})"
            )
            resume = Position(head.topic_id, head.base)
            found.append(Loss(topic, position.offset, None, reason, resume))
        elif position.offset < head.base:
            resume = Position(head.topic_id, head.base)
            reason = "were dropped by retention before they were read"
            found.append(Loss(topic, position.offset, head.base, reason, resume))
        elif position.offset > head.end:
            resume = Position(head.topic_id, head.end)
            reason = (
                f"were there before, but the topic ends at {head.end} now: the broker "
                "lost them or was restored from an older copy"
            )
            found.append(Loss(topic, head.end, position.offset, reason, resume))
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
    hint = "Set failOnDataLoss=false to go on with what is there."
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

    Bounds: With *rows_max* exactly so many messages, if there are as many,
        shared out in proportion to what each topic has waiting, so that no
        topic starves.  Never backwards, and topics that are gone stay where they
        are.
    """
    waiting = {
        topic: _waiting(position, heads.get(topic))
        for topic, position in sorted(start.items())
    }
    taken = waiting if rows_max is None else share_out(waiting, rows_max)
    return {
        topic: Position(position.topic_id, position.offset + taken[topic])
        for topic, position in sorted(start.items())
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
