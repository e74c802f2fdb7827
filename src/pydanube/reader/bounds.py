"""
The bounds of a read: where it starts and where it stops, as options give them.

A bound is one rule for all topics, or JSON with a number for each topic.  Numbers are
offsets, or times in milliseconds as in Spark's Kafka source.  The JSON names a
partitioned topic, ``{"/default/orders": {"0": 23, "1": -2}}``, or each partition,
``{"/default/orders-part-0": 23}``.  Everything in this module is pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST = -2
LATEST = -1

NUMBER_MAX = 2**63 - 1
"""The largest offset or time: both are 64-bit numbers."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Name = tuple[str, int | None]
"""The name of a topic, and the number of a partition or None for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read starts or stops."""

    value: int = LATEST
    """The bound of all topics, if *by_name* is empty."""
    by_name: Mapping[Name, int] = field(default_factory=dict)
    is_time: bool = False
    """True if the numbers are microseconds since 1970 and not offsets."""
    allows_future: bool = True
    """True if a time after the last message means the end; else it is an error."""


def split_name(topic: str) -> tuple[str, int]:
    """
    Split *topic* into the name of its partitioned topic and its partition number.

    A topic without partitions is its own partition 0.
    """
    found = TopicName.parse(topic).split_partition()
    return (topic, 0) if found is None else (str(found[0]), found[1])


def parse_offsets(text: str, option: str) -> Bound:
    """
    Parse ``startingOffsets`` or ``endingOffsets``.

    Raises:
        InvalidConfig: *text* is neither ``earliest``, ``latest`` nor valid JSON.
        InvalidName: A topic's name is malformed.
    """
    match text.lower():
        case "earliest":
            return Bound(value=EARLIEST)
        case "latest":
            return Bound(value=LATEST)
    found = parse_json(text, option, "neither earliest, latest nor JSON")
    return Bound(
        by_name=_by_name(
            found,
            option,
            smallest=EARLIEST,
            what="an offset, -1 for latest or -2 for earliest",
        )
    )


def parse_timestamp(text: str, option: str, *, allows_future: bool) -> Bound:
    """
    Parse ``startingTimestamp`` or ``endingTimestamp``.

    Raises:
        InvalidConfig: *text* is neither milliseconds since 1970 nor a time with a
            time zone.
    """
    return Bound(
        value=_microseconds(text, option), is_time=True, allows_future=allows_future
    )


def parse_timestamps(text: str, option: str, *, allows_future: bool) -> Bound:
    """
    Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``.

    Raises:
        InvalidConfig: *text* is not valid JSON.
        InvalidName: A topic's name is malformed.
    """
    found = parse_json(text, option, "not JSON")
    times = _by_name(found, option, smallest=0, what="milliseconds since 1970")
    return Bound(
        by_name={name: time * 1000 for name, time in times.items()},
        is_time=True,
        allows_future=allows_future,
    )


def parse_json(text: str, option: str, problem: str) -> dict[str, Any]:
    """
    Parse *text* as a JSON object.

    Raises:
        InvalidConfig: *text* is not a JSON object; the message has *problem*.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{option}: {problem}: {error}") from error
    if not isinstance(found, dict) or not found:
        raise InvalidConfig(
            f"{option}: must be a JSON object with the names of topics, not {text}"
        )
    return found


def parse_number(text: str) -> int | None:
    """Parse decimal digits; return None if *text* has others or exceeds 64 bits."""
    # int() raises another error for thousands of digits.
    if not text.isdecimal() or len(text) > 19:
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None


def wanted(bound: Bound, topics: Iterable[str], option: str) -> dict[str, int]:
    """
    Return the number of *bound* for each of *topics*.

    Raises:
        InvalidConfig: *bound* has no number for a topic, names a topic that is not
            read, or gives one offset to several partitions.
    """
    topics = sorted(topics)
    if not bound.by_name:
        return dict.fromkeys(topics, bound.value)
    values, used = {}, set()
    for topic in topics:
        for name in _names_of(topic):
            if name in bound.by_name and topic not in values:
                values[topic] = bound.by_name[name]
                used.add(name)
    _refuse_others(bound, topics, values, used, option)
    for name in used:
        _refuse_one_for_several(bound, name, topics, option)
    return values


def _names_of(topic: str) -> list[Name]:
    """Return the names that a bound may use for *topic*, the exact name first."""
    base, number = split_name(topic)
    return [(topic, None), (base, number), (base, None)]


def _refuse_others(
    bound: Bound,
    topics: Iterable[str],
    values: Mapping[str, int],
    used: set[Name],
    option: str,
) -> None:
    extra = sorted(_text(name) for name in set(bound.by_name) - used)
    missing = [topic for topic in topics if topic not in values]
    if extra or missing:
        raise InvalidConfig(
            f"{option}: must name exactly the topics that are read"
            + (f"; not read: {', '.join(extra)}" if extra else "")
            + (f"; missing: {', '.join(missing)}" if missing else "")
        )


def _refuse_one_for_several(
    bound: Bound, name: Name, topics: Iterable[str], option: str
) -> None:
    """Refuse one offset for several partitions; an offset is valid in one only."""
    base, number = name
    if number is not None or bound.is_time or bound.by_name[name] < 0:
        return
    several = [topic for topic in topics if topic != base and base in topic]
    several = [topic for topic in several if split_name(topic)[0] == base]
    if several:
        example = json.dumps(
            {base: {str(split_name(topic)[1]): 0 for topic in several}}
        )
        raise InvalidConfig(
            f"{option}: {base} has partitions: give each its offset, such as {example}"
        )


def _by_name(
    found: Mapping[str, Any], option: str, *, smallest: int, what: str
) -> dict[Name, int]:
    by_name: dict[Name, int] = {}
    for topic, value in sorted(found.items()):
        name = str(TopicName.parse(topic))
        if not isinstance(value, dict):
            by_name[name, None] = value
            continue
        for key, number in sorted(value.items()):
            partition = parse_number(key)
            if partition is None:
                raise InvalidConfig(
                    f"{option}: {key!r} is not the number of a partition of {topic}"
                )
            by_name[name, partition] = number
    for each in by_name.values():
        if type(each) is not int or not smallest <= each <= NUMBER_MAX // 1000:
            raise InvalidConfig(
                f"{option}: the JSON must give every topic, or each of its partitions, "
                f"{what}, not {each!r}"
            )
    return by_name


def _microseconds(text: str, option: str) -> int:
    number = parse_number(text)
    if number is not None and number <= NUMBER_MAX // 1000:
        return number * 1000
    try:
        time = datetime.fromisoformat(text)
        if time.utcoffset() is not None:
            return (time - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        pass
    raise InvalidConfig(
        f"{option}: must be milliseconds since 1970 or a time with its time zone such "
        f"as 2026-01-31T12:00:00Z, not {text!r}"
    )


def _text(name: Name) -> str:
    topic, number = name
    return topic if number is None else f"{topic} partition {number}"
