"""
What a user can say with ``option(...)`` when topics are read, parsed once on entry.

Whatever is said, it is either options that make sense or an error that names the
option.  Pure, as the names in ``read_option_table.py`` are.
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
from pydanube.model.quantities import DURATION_UNITS, SPARK_BYTE_UNITS, parse_quantity
from pydanube.model.suggestions import did_you_mean
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
from pydanube.reader.read_option_table import OPTIONS, URL_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

FROM_EARLIEST = Bound(value=EARLIEST)
TO_LATEST = Bound(value=LATEST)

_ALIASES = {"danube.url": "url"}
_BY_KEY = {option.name.lower(): option for option in OPTIONS}


class Mode(Enum):
    """How a topic is read."""

    BATCH = "batch"
    STREAM = "stream"


class OnUndecodable(Enum):
    """What becomes of a message that has no value."""

    FAIL = "fail"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How the values of messages are read, where they are."""

    version: int | None = None
    """The version of the subject to read them as; None: the latest."""
    is_version_given: bool = False
    """Whether the user has chosen it, be it the latest."""
    on_undecodable: OnUndecodable = OnUndecodable.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A read, as the user asked for it."""

    url: str = URL_DEFAULT
    topics: tuple[str, ...] = ()
    """Sorted; topics, partitions, or names of topics with partitions."""
    pattern: str | None = None
    """Instead of *topics*."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Instead of both: these partitions of these topics."""
    partitions: frozenset[int] | None = None
    """Only partitions with these numbers; None: all."""
    starting: Bound = FROM_EARLIEST
    ending: Bound = TO_LATEST
    starting_option: str = "startingOffsets"
    ending_option: str = "endingOffsets"
    has_tail: bool = True
    """Whether what is not in segments yet is read, too."""
    columns: tuple[str, ...] | None = None
    """None: all that there are by default."""
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
    """None: payloads are left as they are."""

    def selects(self, topic: str) -> bool:
        """Whether the topic or partition *topic* is one of those that are read."""
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
        """Whether partitions with this *number* are read at all."""
        return self.partitions is None or number in self.partitions


def parse_options(options: Mapping[str, str], mode: Mode | None) -> ReadOptions:
    """
    What *options*, with names in any case, ask for.

    Without a *mode*, when it is not known yet, the options of all are taken.

    Raises:
        InvalidConfig: An option is unknown, malformed, not for this mode, or
            contradicts another.
        InvalidName: A topic or subscription name is malformed.
    """
    given = _given(options, mode)
    topics, pattern, assigned = _selection(given)
    starting, starting_option = _bound(given, "starting", _starting_default(mode))
    ending, ending_option = _bound(given, "ending", "latest")
    _check_ends(mode, starting, ending)
    rows_max = _count(given, "maxOffsetsPerTrigger", None)
    rows_min = _count(given, "minOffsetsPerTrigger", None)
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise InvalidConfig(
            f"minOffsetsPerTrigger: {rows_min} is more than maxOffsetsPerTrigger"
        )
    if "maxtriggerdelay" in given and rows_min is None:
        raise InvalidConfig("maxTriggerDelay: only with minOffsetsPerTrigger")
    return ReadOptions(
        url=given.get("url", URL_DEFAULT),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        partitions=_partitions(given),
        starting=starting,
        ending=ending,
        starting_option=starting_option,
        ending_option=ending_option,
        has_tail=_choice(given, "tail", ("broker", "none")) == "broker",
        columns=_columns(given),
        has_attributes=_truth(given, "includeHeaders", default=True),
        pushes_filters=_truth(given, "pushFilters", default=False),
        trigger_rows_max=rows_max,
        trigger_bytes_max=_bytes(given, "maxBytesPerTrigger", None),
        trigger_rows_min=rows_min,
        trigger_delay_s=_seconds(given, "maxTriggerDelay", 900.0),
        partitions_min=_count(given, "minPartitions", 1) or 1,
        partition_rows_max=_count(given, "maxRecordsPerPartition", None),
        partition_bytes_max=_bytes(given, "maxBytesPerPartition", 32 * 1024 * 1024)
        or 1,
        fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
        subscription=_subscription(given),
        retries=_count(given, "fetchOffset.numRetries", 10, smallest=0) or 0,
        retry_interval_s=(
            _count(given, "fetchOffset.retryIntervalMs", 500, smallest=0) or 0
        )
        / 1000,
        values=_values(given),
    )


def options_table() -> str:
    """The options as a Markdown table, for the guide."""
    rows = [
        f"| `{option.name}` | {option.default or 'none'} | {option.where} | "
        f"{option.meaning} |"
        for option in OPTIONS
    ]
    return "\n".join(
        ["| Option | Default | For | Meaning |", "|---|---|---|---|", *rows]
    )


def _given(options: Mapping[str, str], mode: Mode | None) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in options.items():
        key = _ALIASES.get(name.lower(), name.lower())
        option = _BY_KEY.get(key)
        if option is None:
            names = [each.name for each in OPTIONS]
            raise InvalidConfig(f"unknown option {name!r}{did_you_mean(name, names)}")
        if mode is not None and mode.value not in option.where:
            raise InvalidConfig(f"{option.name}: not for a {mode.value} read")
        if given.setdefault(key, str(value).strip()) != str(value).strip():
            raise InvalidConfig(f"{option.name}: given twice with different values")
    return given


def _selection(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    ways = {"subscribe", "subscribepattern", "assign"} & set(given)
    if len(ways) != 1:
        raise InvalidConfig(
            "give exactly one of 'subscribe', 'subscribePattern' and 'assign'"
        )
    if "subscribe" in given:
        names = _list(given["subscribe"])
        if not names:
            raise InvalidConfig("subscribe: names no topic")
        return tuple(sorted({str(TopicName.parse(name)) for name in names})), None, {}
    if "assign" in given:
        return (), None, _assigned(given["assign"])
    pattern = given["subscribepattern"]
    try:
        # Whatever it might mean one day, it means something now.
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidConfig(f"subscribePattern: {error}") from error
    return (), pattern, {}


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = parse_json(text, "assign", "no JSON")
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


def _partitions(given: Mapping[str, str]) -> frozenset[int] | None:
    text = given.get("filter.partitions")
    if text is None:
        return None
    numbers = [parse_number(each) for each in _list(text)]
    found = frozenset(number for number in numbers if number is not None)
    if not numbers or None in numbers:
        raise InvalidConfig(
            "filter.partitions: must be numbers of partitions such as 0,2, not "
            f"{text!r}"
        )
    return found


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    names = tuple(_list(text))
    if not names or len(set(names)) < len(names):
        raise InvalidConfig(
            "columns: must be names of columns such as offset,payload, each once, "
            f"not {text!r}"
        )
    return names


def _subscription(given: Mapping[str, str]) -> str | None:
    if "groupidprefix" not in given:
        name = given.get("subscription")
        return None if name is None else parse_subscription(name)
    if "subscription" in given:
        raise InvalidConfig("give one of 'subscription' and 'groupIdPrefix'")
    # The same for a query that is started again, another for one that reads others.
    ways = ("subscribe", "subscribepattern", "assign", "filter.partitions")
    what = "\n".join(f"{way}={given[way]}" for way in ways if way in given)
    digest = hashlib.sha256(what.encode("utf-8", "replace")).hexdigest()[:8]
    return parse_subscription(f"{given['groupidprefix']}-{digest}")


def _values(given: Mapping[str, str]) -> ValueOptions | None:
    if not _truth(given, "decode", default=False):
        for name in ("schemaVersion", "onUndecodable"):
            if name.lower() in given:
                raise InvalidConfig(f"{name}: only with decode=true")
        return None
    version = given.get("schemaversion", "latest").lower()
    policy = _choice(given, "onUndecodable", ("fail", "null"))
    return ValueOptions(
        version=None if version == "latest" else _count(given, "schemaVersion", None),
        is_version_given="schemaversion" in given,
        on_undecodable=OnUndecodable(policy),
    )


def _starting_default(mode: Mode | None) -> str:
    return "earliest" if mode is Mode.BATCH else "latest"


def _bound(given: Mapping[str, str], end: str, default: str) -> tuple[Bound, str]:
    """The bound that the options for the *end* say, and which option it was."""
    offsets, moment, moments = (
        f"{end}Offsets",
        f"{end}Timestamp",
        f"{end}OffsetsByTimestamp",
    )
    said = [name for name in (offsets, moment, moments) if name.lower() in given]
    if len(said) > 1:
        raise InvalidConfig(f"give only one of {' and '.join(said)}")
    strategy = "startingOffsetsByTimestampStrategy"
    allows_future = end == "ending"
    if not allows_future:
        allows_future = _choice(given, strategy, ("error", "latest")) == "latest"
        if strategy.lower() in given and said in ([], [offsets]):
            raise InvalidConfig(f"{strategy}: only with {moment} or {moments}")
    text = given.get(said[0].lower(), default) if said else default
    if moment in said:
        return parse_timestamp(text, moment, allows_future=allows_future), moment
    if moments in said:
        return parse_timestamps(text, moments, allows_future=allows_future), moments
    return parse_offsets(text, offsets), offsets


def _check_ends(mode: Mode | None, starting: Bound, ending: Bound) -> None:
    if mode is not Mode.BATCH:
        return
    if not starting.is_time and not starting.by_name and starting.value == LATEST:
        raise InvalidConfig("startingOffsets: a batch cannot start at latest")
    if not ending.is_time and not ending.by_name and ending.value == EARLIEST:
        raise InvalidConfig("endingOffsets: a batch cannot end at earliest")


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    """One of *choices*, of which the first is the default."""
    text = given.get(name.lower(), choices[0]).lower()
    if text not in choices:
        raise InvalidConfig(f"{name}: must be {' or '.join(choices)}, not {text!r}")
    return text


def _count(
    given: Mapping[str, str], name: str, default: int | None, *, smallest: int = 1
) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    number = parse_number(text)
    if number is None or number < smallest:
        raise InvalidConfig(
            f"{name}: must be a number from {smallest} up, not {text!r}"
        )
    return number


def _bytes(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    number = parse_quantity(text, SPARK_BYTE_UNITS)
    if not number or number % 1 or number > 2**62:
        raise InvalidConfig(
            f"{name}: must be a number of bytes such as 1048576, 512k, 64m or 2g, not "
            f"{text!r}"
        )
    return int(number)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower())
    if text is None:
        return default
    number = parse_quantity(text, DURATION_UNITS)
    if number is None:
        raise InvalidConfig(
            f"{name}: must be a time such as 500ms, 30s, 15m or 2h, not {text!r}"
        )
    return number


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}: must be true or false, not {text!r}")
    return text == "true"
