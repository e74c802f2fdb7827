"""
What a user can say with ``option(...)``, parsed once at the door.

``OPTIONS`` is the one place that knows the names: parsing refuses any other,
and the table in ``docs/guide/spark.md`` is made from it.  Where an option means
what one of Spark's Kafka source means, it has that name.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName, parse_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_DEFAULT = "danube://127.0.0.1:6651"

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True)
class Option:
    """One name that ``option(...)`` takes."""

    name: str
    default: str
    meaning: str
    where: str = "batch, stream"


OPTIONS = (
    Option("url", URL_DEFAULT, "The broker; `danube.url` is another name for it."),
    Option("subscribe", "", "The topics to read, separated by commas."),
    Option(
        "subscribePattern",
        "",
        "A regular expression that whole topic names match; a stream also finds "
        "topics that are created later, and reads them from their first message. "
        "Exactly one of `subscribe` and `subscribePattern` is given.",
    ),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        '`earliest`, `latest`, or JSON such as `{"/default/orders": 23}` with one '
        "offset for every topic, where -2 is earliest and -1 is latest. A stream "
        "that finds a checkpoint goes on from there instead.",
    ),
    Option(
        "endingOffsets",
        "latest",
        "Where to stop, as for `startingOffsets`; the offset itself is not read.",
        "batch",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        "The most messages of one micro-batch, shared out over the topics in "
        "proportion to what each has waiting.",
        "stream",
    ),
    Option(
        "minPartitions",
        "1",
        "Cut into at least so many Spark partitions, if there are as many messages.",
    ),
    Option(
        "maxBytesPerPartition",
        "33554432",
        "Cut larger stretches of history, and join neighbouring smaller ones up to "
        "this size; counts the bytes of the compressed segments.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "Fail if messages are gone that were not read yet; `false` goes on with the "
        "first message that is still there and logs what is missing.",
    ),
    Option(
        "subscription",
        "",
        "Report progress to the broker under this name, so that the lag of the query "
        "shows in its tools. Spark's checkpoint alone decides what is read.",
        "stream",
    ),
    Option(
        "decode",
        "false",
        "Add the column `value`, decoded by the subject that the topics are bound to.",
    ),
    Option(
        "schemaVersion",
        "latest",
        "The version of the subject whose columns `value` has; `latest` is the one "
        "when the query is planned. A stream without this option goes on with the "
        "version in its checkpoint.",
    ),
    Option(
        "onUndecodable",
        "fail",
        "What if a message cannot be decoded: `fail` ends the query and says which; "
        "with `null` its `value` is null and the column `_error` says why.",
    ),
    Option(
        "fetchOffset.numRetries",
        "10",
        "How often a request is repeated while the broker cannot be reached.",
    ),
    Option(
        "fetchOffset.retryIntervalMs", "500", "How long to wait before each repetition."
    ),
)

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


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or stop: one rule for all topics, or one offset for each."""

    offset: int = LATEST
    """EARLIEST or LATEST, for all topics, if there is nothing in *by_topic*."""
    by_topic: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A read, as the user asked for it."""

    url: str = URL_DEFAULT
    topics: tuple[str, ...] = ()
    """Sorted; empty if there is a pattern."""
    pattern: str | None = None
    starting: Bound = Bound(EARLIEST)
    ending: Bound = Bound(LATEST)
    offsets_per_trigger_max: int | None = None
    partitions_min: int = 1
    partition_bytes_max: int = 32 * 1024 * 1024
    fail_on_data_loss: bool = True
    subscription: str | None = None
    retries: int = 10
    retry_interval_s: float = 0.5
    values: ValueOptions | None = None
    """None: payloads are left as they are."""


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
    topics, pattern = _selection(given)
    starting = _bound(
        given.get("startingoffsets", _starting_default(mode)), "startingOffsets"
    )
    ending = _bound(given.get("endingoffsets", "latest"), "endingOffsets")
    if mode is Mode.BATCH and not starting.by_topic and starting.offset == LATEST:
        raise InvalidConfig("startingOffsets: a batch cannot start at latest")
    if mode is Mode.BATCH and not ending.by_topic and ending.offset == EARLIEST:
        raise InvalidConfig("endingOffsets: a batch cannot end at earliest")
    subscription = given.get("subscription")
    return ReadOptions(
        url=given.get("url", URL_DEFAULT),
        topics=topics,
        pattern=pattern,
        starting=starting,
        ending=ending,
        offsets_per_trigger_max=_count(given, "maxOffsetsPerTrigger", None),
        partitions_min=_count(given, "minPartitions", 1) or 1,
        partition_bytes_max=_count(given, "maxBytesPerPartition", 32 * 1024 * 1024)
        or 1,
        fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
        subscription=None if subscription is None else parse_subscription(subscription),
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
            raise InvalidConfig(f"unknown option {name!r}{_suggestion(key)}")
        if mode is not None and mode.value not in option.where:
            raise InvalidConfig(f"{option.name}: not for a {mode.value} read")
        if given.setdefault(key, str(value).strip()) != str(value).strip():
            raise InvalidConfig(f"{option.name}: given twice with different values")
    return given


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, _BY_KEY, n=1)
    return f"; did you mean {_BY_KEY[near[0]].name!r}?" if near else ""


def _selection(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    if ("subscribe" in given) == ("subscribepattern" in given):
        raise InvalidConfig("give exactly one of 'subscribe' and 'subscribePattern'")
    if "subscribe" in given:
        names = [name.strip() for name in given["subscribe"].split(",") if name.strip()]
        if not names:
            raise InvalidConfig("subscribe: names no topic")
        return tuple(sorted({str(TopicName.parse(name)) for name in names})), None
    pattern = given["subscribepattern"]
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidConfig(f"subscribePattern: {error}") from error
    return (), pattern


def _values(given: Mapping[str, str]) -> ValueOptions | None:
    if not _truth(given, "decode", default=False):
        for name in ("schemaVersion", "onUndecodable"):
            if name.lower() in given:
                raise InvalidConfig(f"{name}: only with decode=true")
        return None
    version = given.get("schemaversion", "latest").lower()
    policy = given.get("onundecodable", "fail").lower()
    try:
        on_undecodable = OnUndecodable(policy)
    except ValueError:
        raise InvalidConfig(
            f"onUndecodable: must be fail or null, not {policy!r}"
        ) from None
    return ValueOptions(
        version=None if version == "latest" else _count(given, "schemaVersion", None),
        is_version_given="schemaversion" in given,
        on_undecodable=on_undecodable,
    )


def _starting_default(mode: Mode | None) -> str:
    return "earliest" if mode is Mode.BATCH else "latest"


def _bound(text: str, name: str) -> Bound:
    match text.lower():
        case "earliest":
            return Bound(EARLIEST)
        case "latest":
            return Bound(LATEST)
    try:
        by_topic = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(
            f"{name}: neither earliest, latest nor JSON: {error}"
        ) from error
    if not isinstance(by_topic, dict) or not all(
        type(offset) is int and offset >= EARLIEST for offset in by_topic.values()
    ):
        raise InvalidConfig(
            f"{name}: the JSON must give every topic an offset, -1 for latest or -2 "
            "for earliest"
        )
    if not by_topic:
        raise InvalidConfig(f"{name}: the JSON names no topic")
    return Bound(
        by_topic={
            str(TopicName.parse(topic)): offset
            for topic, offset in sorted(by_topic.items())
        }
    )


def _count(
    given: Mapping[str, str], name: str, default: int | None, *, smallest: int = 1
) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) < smallest:
        raise InvalidConfig(
            f"{name}: must be a number from {smallest} up, not {text!r}"
        )
    return int(text)


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}: must be true or false, not {text!r}")
    return text == "true"
