"""Settings of topics by the names that Kafka's clients use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import KEEP_ALL, Retention

FOREVER = -1
"""The value of a limit that does not exist."""
_MS = 1000


class ValueType(IntEnum):
    """The types of settings, by their numbers in the protocol."""

    STRING = 2
    INT = 3
    LONG = 5


class Change(IntEnum):
    """The ways to change a setting, by their numbers in the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of a topic that have names in Kafka; None: not its own."""

    retention: Retention | None = None
    seal_bytes: int | None = None
    seal_age_s: float | None = None
    message_bytes_max: int = 0
    """0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A setting as clients see it."""

    name: str
    value: str
    type: ValueType
    is_own: bool = False
    """Whether the topic has a value of its own."""
    is_fixed: bool = False
    documentation: str = field(default="", compare=False)


def describe(
    config: TopicConfig, effective: Retention, names: Iterable[str] | None = None
) -> list[Described]:
    """
    Return the settings with these *names*, or all; unknown names are left out.

    *effective* is the retention in force, which may be that of the namespace.
    ``cleanup.policy`` is left out if the topic keeps all messages by a setting of its
    own: it fits programs that need ``compact``, and is none for a copy of the topic,
    whose older messages a broker of Kafka would delete.
    """
    is_own = config.retention is not None
    age_ms = FOREVER if effective.age_s is None else round(effective.age_s * _MS)
    bytes_max = FOREVER if effective.bytes_max is None else effective.bytes_max
    seal_ms = FOREVER if config.seal_age_s is None else round(config.seal_age_s * _MS)
    described = [
        Described(
            name=_CLEANUP,
            value="delete",
            type=ValueType.STRING,
            documentation="compact keeps all messages for danube maintenance",
        ),
        Described(
            name="compression.type",
            value="producer",
            type=ValueType.STRING,
            is_fixed=True,
            documentation="messages are stored in the format of the broker",
        ),
        Described(
            name="max.message.bytes",
            value=str(config.message_bytes_max or 2**31 - 1),
            type=ValueType.INT,
            is_fixed=True,
            documentation="a limit of the topic or its namespace",
        ),
        Described(
            name="message.timestamp.type",
            value="CreateTime",
            type=ValueType.STRING,
            is_fixed=True,
            documentation="the time of a message is that of its producer",
        ),
        Described(
            name="min.insync.replicas",
            value="1",
            type=ValueType.INT,
            is_fixed=True,
            documentation="one broker serves a topic",
        ),
        Described(
            name="retention.bytes",
            value=str(bytes_max),
            type=ValueType.LONG,
            is_own=is_own,
            documentation="segments are dropped while the topic is larger without them",
        ),
        Described(
            name="retention.ms",
            value=str(age_ms),
            type=ValueType.LONG,
            is_own=is_own,
            documentation="segments are dropped whose messages are all older",
        ),
        Described(
            name="segment.bytes",
            value=str(config.seal_bytes or FOREVER),
            type=ValueType.LONG,
            is_own=config.seal_bytes is not None,
            documentation="a segment ends at this size; -1: as the broker says",
        ),
        Described(
            name="segment.ms",
            value=str(seal_ms),
            type=ValueType.LONG,
            is_own=config.seal_age_s is not None,
            documentation="a segment ends at this age; -1: as the broker says",
        ),
    ]
    if config.retention == KEEP_ALL:
        described = [each for each in described if each.name != _CLEANUP]
    if names is None:
        return described
    wanted = frozenset(names)
    return [each for each in described if each.name in wanted]


def changed(
    config: TopicConfig, changes: Iterable[tuple[str, int, str | None]]
) -> tuple[TopicConfig, set[str]]:
    """
    Return *config* after *changes*, and the names of its fields that were changed.

    A change has a name, a ``Change`` and a value.

    Raises:
        InvalidRequest: A setting is unknown or fixed, or a value is not allowed.
    """
    fields = set[str]()
    keeps_all = False
    for name, change, text in changes:
        if change not in (Change.SET, Change.DELETE):
            raise InvalidRequest(f"{name} is no list: set it or delete it")
        limit = None
        if change == Change.SET and name in _LIMITS:
            limit = _limit(name, text)
        match name:
            case "retention.ms" | "retention.bytes":
                retention = config.retention or KEEP_ALL
                if name == "retention.ms":
                    age_s = None if limit is None else limit / _MS
                    retention = replace(retention, age_s=age_s)
                else:
                    retention = replace(retention, bytes_max=limit)
                config = replace(config, retention=retention)
                fields.add("retention")
            case "segment.bytes":
                config = replace(config, seal_bytes=limit)
                fields.add("seal_bytes")
            case "segment.ms":
                age_s = None if limit is None else limit / _MS
                config = replace(config, seal_age_s=age_s)
                fields.add("seal_age_s")
            case "cleanup.policy":
                keeps_all = change == Change.SET and _policies(text) == {"compact"}
            case _:
                _check_fixed(name, change, text)
    if keeps_all:
        # Kafka does not look at limits of retention then.
        return replace(config, retention=KEEP_ALL), fields | {"retention"}
    return config, fields


_CLEANUP = "cleanup.policy"
_CHANGEABLE = (
    _CLEANUP,
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
_LIMITS = frozenset(_CHANGEABLE) - {_CLEANUP}
_FIXED: Mapping[str, str] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


def _check_fixed(name: str, change: int, text: str | None) -> None:
    """Raise unless the setting is the same for all topics, and has this value."""
    if name not in _FIXED:
        raise InvalidRequest(
            f"topics have no setting {name!r}: those that can be changed are "
            f"{', '.join(_CHANGEABLE)}"
        )
    if change == Change.SET and text != _FIXED[name]:
        raise InvalidRequest(f"{name} is {_FIXED[name]} for all topics of the broker")


def _policies(text: str | None) -> set[str]:
    found = {each.strip() for each in (text or "").split(",")}
    if not found <= {"compact", "delete"}:
        raise InvalidRequest(
            f"cleanup.policy is compact, delete or both, and not {text!r:.50}"
        )
    return found


def _limit(name: str, text: str | None) -> int | None:
    try:
        value = int(text or "")
    except ValueError:
        raise InvalidRequest(f"{name} must be a whole number, not {text!r}") from None
    if value < FOREVER:
        raise InvalidRequest(f"{name} is {value}; -1 means no limit")
    return None if value == FOREVER else value
