"""
Where a read starts and where it stops, as a user says it.

One rule for all topics, or JSON with a number for each; the numbers are offsets,
or times in milliseconds as in Spark's Kafka source.  A topic with partitions goes
by its own name, ``{"/default/orders": {"0": 23, "1": -2}}``, or each partition by
its own, ``{"/default/orders-part-0": 23}``.  Everything on this page is pure.
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
"""Offsets and times are 64-bit numbers."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Name = tuple[str, int | None]
"""A topic as users name it, and the number of a partition if they give one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where to start or stop."""

    value: int = LATEST
    """For all topics, if there is nothing in *by_name*."""
    by_name: Mapping[Name, int] = field(default_factory=dict)
    is_time: bool = False
    """Whether the numbers are microseconds since 1970, or offsets."""
    may_be_later: bool = True
    """Whether a time that no message has reached yet means the end."""


def split_name(topic: str) -> tuple[str, int]:
    """
    The name that users know *topic* by, and which of its partitions it is.

    A topic without partitions is its own partition 0.
    """
    found = TopicName.parse(topic).split_partition()
    return (topic, 0) if found is None else (str(found[0]), found[1])


def parse_offsets(text: str, option: str) -> Bound:
    """
    What ``startingOffsets`` or ``endingOffsets`` say.

    Raises:
        InvalidConfig: *text* is neither a word that is known nor such JSON.
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


def parse_moment(text: str, option: str, *, may_be_later: bool) -> Bound:
    """
    What ``startingTimestamp`` or ``endingTimestamp`` say.

    Raises:
        InvalidConfig: *text* is neither milliseconds since 1970 nor a time with a
            zone.
    """
    return Bound(
        value=_microseconds(text, option), is_time=True, may_be_later=may_be_later
    )


def parse_moments(text: str, option: str, *, may_be_later: bool) -> Bound:
    """
    What ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp`` say.

    Raises:
        InvalidConfig: *text* is not such JSON.
        InvalidName: A topic's name is malformed.
    """
    found = parse_json(text, option, "no JSON")
    times = _by_name(found, option, smallest=0, what="milliseconds since 1970")
    return Bound(
        by_name={name: time * 1000 for name, time in times.items()},
        is_time=True,
        may_be_later=may_be_later,
    )


def parse_json(text: str, option: str, otherwise: str) -> dict[str, Any]:
    """
    The JSON object *text*.

    Raises:
        InvalidConfig: It is none; *otherwise* says what it is then.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{option}: {otherwise}: {error}") from error
    if not isinstance(found, dict) or not found:
        raise InvalidConfig(
            f"{option}: the JSON must be an object that names topics, not {text}"
        )
    return found


def parse_number(text: str) -> int | None:
    """The number that *text* writes with digits; None if it is none of 64 bits."""
    # Python refuses to read thousands of digits with an error of its own.
    if not text.isdecimal() or len(text) > 19:
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None


def wanted(bound: Bound, topics: Iterable[str], option: str) -> dict[str, int]:
    """
    The number that *bound* has for each of *topics*, by the name of each partition.

    Raises:
        InvalidConfig: It has none for a topic, names one that is not there, or
            gives several partitions one offset.
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
    """What users may say for the topic or partition *topic*, the exact name first."""
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
    """An offset means one place in one partition; ends and times are in each."""
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
            f"{option}: {base} has partitions: give each an offset, such as {example}"
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
        f"{option}: neither milliseconds since 1970 nor a time with its zone such as "
        f"2026-01-31T12:00:00Z: {text!r}"
    )


def _text(name: Name) -> str:
    topic, number = name
    return topic if number is None else f"{topic} partition {number}"
