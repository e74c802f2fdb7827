"""
The options of a read, parsed and checked.

Parsing returns consistent options or raises an error that names the option.  Pure.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName, parse_subscription
from pydanube.reader.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    parse_json,
    parse_number,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
    split_name,
)
from pydanube.reader.option_parsing import ParsedOptions, parse_options
from pydanube.reader.read_option_table import OPTIONS, URL_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

FROM_EARLIEST = Bound(value=EARLIEST)
TO_LATEST = Bound(value=LATEST)

_ALIASES = {"danube.url": "url"}


class Mode(Enum):
    """How a topic is read."""

    BATCH = "batch"
    STREAM = "stream"


class OnUndecodable(Enum):
    """How a read treats messages that cannot be decoded."""

    FAIL = "fail"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How values are decoded."""

    version: int | None = None
    """The version of the reader schema; None: the latest."""
    is_version_given: bool = False
    """True if the user set ``schemaVersion``, even to the latest."""
    on_undecodable: OnUndecodable = OnUndecodable.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The parsed options of a read."""

    url: str = URL_DEFAULT
    topics: tuple[str, ...] = ()
    """Topics, partitions or names of partitioned topics, sorted."""
    pattern: str | None = None
    """A regular expression, instead of *topics*."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions to read of each topic, instead of both."""
    partitions: frozenset[int] | None = None
    """The partition numbers to read; None: all."""
    starting: Bound = FROM_EARLIEST
    ending: Bound = TO_LATEST
    starting_option: str = "startingOffsets"
    ending_option: str = "endingOffsets"
    has_tail: bool = True
    """True if the tail is read, too."""
    columns: tuple[str, ...] | None = None
    """None: the default columns."""
    has_attributes: bool = True
    pushes_filters: bool = False
    trigger_rows_max: int | None = None
    trigger_bytes_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_s: float = 900.0
    partitions_min: int = 1
    partition_rows_max: int | None = None
    partition_bytes_max: int = 32 * 1024 * 1024
    fail_on_data_loss: bool = True
    subscription: str | None = None
    retries: int = 10
    retry_interval_s: float = 0.5
    values: ValueOptions | None = None
    """None: values are not decoded."""

    def selects(self, topic: str) -> bool:
        """Return whether the topic or partition *topic* is read."""
        base, number = split_name(topic)
        if not self.selects_partition(number):
            return False
        if self.pattern is not None:
            names = (topic, base)
            return any(re.fullmatch(self.pattern, name) for name in names)
        if self.assigned:
            return number in self.assigned.get(base, ())
        return topic in self.topics or base in self.topics

    def selects_partition(self, number: int) -> bool:
        """Return whether ``filter.partitions`` allows partitions with this *number*."""
        return self.partitions is None or number in self.partitions


def parse_read_options(options: Mapping[str, str], mode: Mode | None) -> ReadOptions:
    """
    Parse *options*, whose names are in any case.

    If *mode* is None, the options of both modes are allowed.

    Raises:
        InvalidConfig: An option is unknown, malformed, not for this mode, or
            contradicts another.
        InvalidName: A topic or subscription name is malformed.
    """
    given = parse_options(
        options, OPTIONS, mode=None if mode is None else mode.value, aliases=_ALIASES
    )
    topics, pattern, assigned = _selection(given)
    starting, starting_option = _bound(given, "starting", _starting_default(mode))
    ending, ending_option = _bound(given, "ending", "latest")
    _check_ends(mode, starting, ending)
    rows_max = given.count("maxOffsetsPerTrigger", None)
    rows_min = given.count("minOffsetsPerTrigger", None)
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise InvalidConfig(
            f"minOffsetsPerTrigger: {rows_min} is more than maxOffsetsPerTrigger"
        )
    if "maxTriggerDelay" in given and rows_min is None:
        raise InvalidConfig("maxTriggerDelay: only with minOffsetsPerTrigger")
    return ReadOptions(
        url=given.text("url", URL_DEFAULT),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        partitions=_partitions(given),
        starting=starting,
        ending=ending,
        starting_option=starting_option,
        ending_option=ending_option,
        has_tail=given.choice("tail", ("broker", "none"), "broker") == "broker",
        columns=_columns(given),
        has_attributes=given.boolean("includeHeaders", default=True),
        pushes_filters=given.boolean("pushFilters", default=False),
        trigger_rows_max=rows_max,
        trigger_bytes_max=given.byte_count("maxBytesPerTrigger", None),
        trigger_rows_min=rows_min,
        trigger_delay_s=given.duration_s("maxTriggerDelay", 900.0),
        partitions_min=given.count("minPartitions", 1),
        partition_rows_max=given.count("maxRecordsPerPartition", None),
        partition_bytes_max=given.byte_count("maxBytesPerPartition", 32 * 1024 * 1024),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        subscription=_subscription(given),
        retries=given.count("fetchOffset.numRetries", 10, smallest=0),
        retry_interval_s=given.count("fetchOffset.retryIntervalMs", 500, smallest=0)
        / 1000,
        values=_values(given),
    )


def _selection(
    given: ParsedOptions,
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    if sum(name in given for name in ("subscribe", "subscribePattern", "assign")) != 1:
        raise InvalidConfig(
            "set exactly one of 'subscribe', 'subscribePattern' and 'assign'"
        )
    if "subscribe" in given:
        names = given.items("subscribe")
        if not names:
            raise InvalidConfig("subscribe: must name at least one topic")
        return tuple(sorted({str(TopicName.parse(name)) for name in names})), None, {}
    if "assign" in given:
        return (), None, _assigned(given.text("assign"))
    pattern = given.text("subscribePattern")
    try:
        # re warns about syntax whose meaning may change in later versions of Python.
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidConfig(f"subscribePattern: {error}") from error
    return (), pattern, {}


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = parse_json(text, "assign", "not JSON")
    assigned = {}
    for topic, numbers in sorted(found.items()):
        if not isinstance(numbers, list) or not all(
            type(each) is int and each >= 0 for each in numbers
        ):
            raise InvalidConfig(
                "assign: the JSON must list the partitions of every topic, such as "
                f'{{"/default/orders": [0, 1]}}, not {numbers!r}'
            )
        assigned[str(TopicName.parse(topic))] = tuple(sorted(set(numbers)))
    return assigned


def _partitions(given: ParsedOptions) -> frozenset[int] | None:
    text = given.get("filter.partitions")
    if text is None:
        return None
    numbers = [parse_number(each) for each in given.items("filter.partitions")]
    found = frozenset(number for number in numbers if number is not None)
    if not numbers or None in numbers:
        raise InvalidConfig(
            f"filter.partitions: must be partition numbers such as 0,2, not {text!r}"
        )
    return found


def _columns(given: ParsedOptions) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    names = tuple(given.items("columns"))
    if not names or len(set(names)) < len(names):
        raise InvalidConfig(
            "columns: must be names of columns such as offset,payload, each once, "
            f"not {text!r}"
        )
    return names


def _subscription(given: ParsedOptions) -> str | None:
    if "groupIdPrefix" not in given:
        name = given.get("subscription")
        return None if name is None else parse_subscription(name)
    if "subscription" in given:
        raise InvalidConfig("set only one of 'subscription' and 'groupIdPrefix'")
    # A restarted query keeps its name; queries of other topics have other names.
    names = ("subscribe", "subscribepattern", "assign", "filter.partitions")
    topics = "\n".join(f"{name}={given.text(name)}" for name in names if name in given)
    digest = hashlib.sha256(topics.encode("utf-8", "replace")).hexdigest()[:8]
    return parse_subscription(f"{given.text('groupIdPrefix')}-{digest}")


def _values(given: ParsedOptions) -> ValueOptions | None:
    if not given.boolean("decode", default=False):
        for name in ("schemaVersion", "onUndecodable"):
            if name in given:
                raise InvalidConfig(f"{name}: only with decode=true")
        return None
    version = given.text("schemaVersion", "latest").lower()
    policy = given.choice("onUndecodable", ("fail", "null"), "fail")
    return ValueOptions(
        version=None if version == "latest" else given.count("schemaVersion", None),
        is_version_given="schemaVersion" in given,
        on_undecodable=OnUndecodable(policy),
    )


def _starting_default(mode: Mode | None) -> str:
    return "earliest" if mode is Mode.BATCH else "latest"


def _bound(given: ParsedOptions, end: str, default: str) -> tuple[Bound, str]:
    """Return the bound at *end*, ``starting`` or ``ending``, and its option's name."""
    offsets, time, times = (
        f"{end}Offsets",
        f"{end}Timestamp",
        f"{end}OffsetsByTimestamp",
    )
    found = [name for name in (offsets, time, times) if name in given]
    if len(found) > 1:
        raise InvalidConfig(f"set only one of {' and '.join(found)}")
    strategy = "startingOffsetsByTimestampStrategy"
    allows_future = end == "ending"
    if not allows_future:
        allows_future = given.choice(strategy, ("error", "latest"), "error") == "latest"
        if strategy in given and found in ([], [offsets]):
            raise InvalidConfig(f"{strategy}: only with {time} or {times}")
    if time in found:
        bound = parse_timestamp(given.text(time), time, allows_future=allows_future)
        return bound, time
    if times in found:
        bound = parse_timestamps(given.text(times), times, allows_future=allows_future)
        return bound, times
    return parse_offsets(given.text(offsets, default), offsets), offsets


def _check_ends(mode: Mode | None, starting: Bound, ending: Bound) -> None:
    if mode is not Mode.BATCH:
        return
    if not starting.is_time and not starting.by_name and starting.value == LATEST:
        raise InvalidConfig("startingOffsets: a batch cannot start at latest")
    if not ending.is_time and not ending.by_name and ending.value == EARLIEST:
        raise InvalidConfig("endingOffsets: a batch cannot end at earliest")
