"""
The bounds of a read: where it starts and where it stops, as options give them.

A bound is one rule for all topics, or JSON with a number for each topic.  Numbers are
offsets, or times in milliseconds as in Spark's Kafka source.  The JSON names a
partitioned topic, ``{"/default/orders": {"0": 23, "1": -2}}``, or each partition,
``{"/default/orders-part-0": 23}``.  Everything in this module is pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.positions import TIME_MAX, to_microseconds

EARLIEST = -2
LATEST = -1

NUMBER_MAX = 2**63 - 1
"""The largest offset, a 64-bit number."""
MILLISECONDS_MAX = TIME_MAX // 1000
"""The largest time, in milliseconds since 1970."""

Name = tuple[str, int | None]
"""The name of a topic, and the number of a partition or None for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read starts or stops."""

    option: str
    """The option that sets the bound, for error messages."""
    value: int = LATEST
    """The bound of all topics, if *by_name* is empty."""
    by_name: Mapping[Name, int] = field(default_factory=dict)
    is_time: bool = False
    """True if the numbers are microseconds since 1970 and not offsets."""
    allows_future: bool = True
    """True if a time after the last message means the end; else it is an error."""

    def numbers_for(self, topics: Iterable[str]) -> dict[str, int]:
        """
        Return the number for each of *topics*.

        Raises:
            InvalidConfig: The bound has no number for a topic, names a topic that is
                not read, or gives one offset to several partitions.
        """
        topics = sorted(topics)
        if not self.by_name:
            return dict.fromkeys(topics, self.value)
        names: dict[str, Name] = {}
        for topic in topics:
            base, number = split_name(topic)
            # The exact name takes precedence.
            known: list[Name] = [(base, None), (base, number), (topic, None)]
            for name in known:
                if name in self.by_name:
                    names[topic] = name
        extra = sorted(
            name if number is None else f"{name} partition {number}"
            for name, number in set(self.by_name) - set(names.values())
        )
        missing = [topic for topic in topics if topic not in names]
        if extra or missing:
            raise InvalidConfig(
                f"{self.option}: must name exactly the topics that are read"
                + (f"; not read: {', '.join(extra)}" if extra else "")
                + (f"; missing: {', '.join(missing)}" if missing else "")
            )
        for topic, name in names.items():
            base, _ = split_name(topic)
            if base != topic and name == (base, None):
                self._check_number_for_all(name, topics)
        return {topic: self.by_name[name] for topic, name in names.items()}

    def _check_number_for_all(self, name: Name, topics: Iterable[str]) -> None:
        """Refuse one offset for all partitions; an offset is valid in one only."""
        if self.is_time or self.by_name[name] < 0:
            return
        parts = [number for base, number in map(split_name, topics) if base == name[0]]
        example = json.dumps({name[0]: {str(number): 0 for number in parts}})
        raise InvalidConfig(
            f"{self.option}: {name[0]} has partitions: give each its offset, such as "
            f"{example}"
        )


@lru_cache(maxsize=1 << 16)
def split_name(topic: str) -> tuple[str, int]:
    """
    Split *topic* into the name of its partitioned topic and its partition number.

    A topic without partitions is its own partition 0.
    """
    found = TopicName.parse(topic).split_partition()
    return (topic, 0) if found is None else (str(found[0]), found[1])


def parse_bound(option: str, text: str, *, allows_future: bool = True) -> Bound:
    """
    Parse the *text* of an option for a bound.

    Options whose names end in ``Timestamp`` have one time for all topics, those in
    ``OffsetsByTimestamp`` a time for each topic, and all others have offsets.

    Raises:
        InvalidConfig: *text* is malformed.
        InvalidName: A topic's name is malformed.
    """
    make_time = partial(Bound, option=option, is_time=True, allows_future=allows_future)
    if option.endswith("OffsetsByTimestamp"):
        found = parse_json(text, option, "not JSON")
        what = "milliseconds since 1970, at most of the year 9999"
        times = _by_name(found, option, largest=MILLISECONDS_MAX, what=what)
        return make_time(by_name={name: time * 1000 for name, time in times.items()})
    if option.endswith("Timestamp"):
        return make_time(value=_microseconds(text, option))
    for word, value in (("earliest", EARLIEST), ("latest", LATEST)):
        if text.lower() == word:
            return Bound(option=option, value=value)
    found = parse_json(text, option, "neither earliest, latest nor JSON")
    what = "an offset, -1 for latest or -2 for earliest"
    by_name = _by_name(found, option, smallest=EARLIEST, what=what)
    return Bound(option=option, by_name=by_name)


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


def _by_name(
    found: Mapping[str, Any],
    option: str,
    *,
    smallest: int = 0,
    largest: int = NUMBER_MAX,
    what: str,
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
        if type(each) is not int or not smallest <= each <= largest:
            raise InvalidConfig(
                f"{option}: the JSON must give every topic, or each of its partitions, "
                f"{what}, not {each!r}"
            )
    return by_name


def _microseconds(text: str, option: str) -> int:
    number = parse_number(text)
    if number is not None and number <= MILLISECONDS_MAX:
        return number * 1000
    with suppress(ValueError, OverflowError, InvalidRequest):
        return to_microseconds(datetime.fromisoformat(text))
    raise InvalidConfig(
        f"{option}: must be milliseconds since 1970, at most of the year 9999, or a "
        f"time with its time zone such as 2026-01-31T12:00:00Z, not {text!r}"
    )
