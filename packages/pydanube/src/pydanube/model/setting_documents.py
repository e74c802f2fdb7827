"""
The settings of topics, subscriptions and namespaces, as documents for people.

A document has names and texts as in ``{"retention": {"age": "7d"}}``.  A group of
settings that the topic does not have itself is one word, such as ``inherit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from pydanube.model.descriptions import TopicDescription, TopicSettings
from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import (
    Backoff,
    CorruptionPolicy,
    Deduplication,
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    NamespaceSettings,
    PoisonPolicy,
    SubscriptionSettings,
)
from pydanube.model.positions import parse_choice
from pydanube.model.quantities import parse_bytes, parse_duration
from pydanube.model.quantity_formats import format_duration
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube.model.suggestions import did_you_mean

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: the attribute that has it, and its value as in a document."""

    attribute: str
    show: Callable[[Any], Any]
    parse: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, or a whole group of settings, that changes."""

    setting: str
    old: Any
    new: Any


def document_of(settings: TopicSettings, *, is_reliable: bool) -> Document:
    """Return the *settings* of a topic as a document."""
    document: Document = {}
    if is_reliable:
        document = {
            "on_corruption": settings.on_corruption.value,
            "retention": _group_shown(RETENTION, settings.retention, INHERIT),
            "sealing": _shown(SEALING, settings),
            "deduplication": _group_shown(DEDUPLICATION, settings.deduplication, NONE),
        }
    document["limits"] = _group_shown(LIMITS, settings.limits, INHERIT)
    document["schema"] = _group_shown(SCHEMA, settings.schema, NONE)
    return document


def whole_document_of(topic: TopicDescription) -> Document:
    """Return the settings of *topic* as if it had a group of each kind itself."""
    settings = topic.settings
    whole = replace(
        settings,
        retention=settings.retention or topic.retention,
        deduplication=settings.deduplication or Deduplication(),
        limits=settings.limits or topic.limits,
        schema=settings.schema or TopicSchema(subject=""),
    )
    return document_of(whole, is_reliable=topic.policy.is_reliable)


def with_document(topic: TopicDescription, document: object) -> TopicSettings:
    """
    Return the settings of *topic* with those in *document*; others do not change.

    A topic that gets a retention or limits of its own begins with those of its
    namespace.

    Raises:
        InvalidRequest: The document has an unknown name, or an invalid value.
    """
    settings = topic.settings
    known = document_of(settings, is_reliable=topic.policy.is_reliable)
    given = _mapping("the document", document, known)
    if "on_corruption" in given:
        value = _parsed("on_corruption", given["on_corruption"], _parse_reaction)
        settings = replace(settings, on_corruption=value)
    if "retention" in given:
        base = topic.retention
        value = _group("retention", RETENTION, base, given["retention"], INHERIT)
        settings = replace(settings, retention=value)
    if "sealing" in given:
        settings = _group("sealing", SEALING, settings, given["sealing"], None)
    if "deduplication" in given:
        window = settings.deduplication or Deduplication()
        value = _group(
            "deduplication", DEDUPLICATION, window, given["deduplication"], NONE
        )
        settings = replace(settings, deduplication=value)
    settings.check()
    if "limits" in given:
        limits = _group("limits", LIMITS, topic.limits, given["limits"], INHERIT)
        settings = replace(settings, limits=limits)
    if "schema" in given:
        binding = topic.schema or TopicSchema(subject="")
        schema = _group("schema", SCHEMA, binding, given["schema"], NONE)
        if schema is not None and not schema.subject:
            raise InvalidRequest("schema.subject is missing: the topic has no schema")
        settings = replace(settings, schema=schema)
    return settings


def subscription_document_of(settings: SubscriptionSettings) -> Document:
    """Return the *settings* of a subscription as a document."""
    policy = settings.failure_policy or FailurePolicy()
    return {
        "failure_policy": _shown(FAILURE_POLICY, policy),
        "limits": _shown(DISPATCH_LIMITS, settings.limits or DispatchLimits()),
        "paused": settings.is_paused,
    }


def with_subscription_document(
    settings: SubscriptionSettings, document: object
) -> SubscriptionSettings:
    """
    Return *settings* with those in *document*; others do not change.

    A dead-letter topic without ``poison`` is for messages that have failed too often.

    Raises:
        InvalidRequest: The document has an unknown name, or an invalid value.
    """
    given = _mapping("the document", document, subscription_document_of(settings))
    if "failure_policy" in given:
        table = given["failure_policy"]
        if isinstance(table, dict) and table.get("dead_letter_topic", NONE) != NONE:
            table = {"poison": PoisonPolicy.DEAD_LETTER.value, **table}
        base = settings.failure_policy or FailurePolicy()
        policy = _group("failure_policy", FAILURE_POLICY, base, table, DEFAULT)
        settings = replace(settings, failure_policy=policy)
    if "limits" in given:
        limits = settings.limits or DispatchLimits()
        limits = _group("limits", DISPATCH_LIMITS, limits, given["limits"], NONE)
        settings = replace(settings, limits=limits)
    if "paused" in given:
        is_paused = _parsed("paused", given["paused"], _parse_flag)
        settings = replace(settings, is_paused=is_paused)
    return settings


def namespace_document_of(settings: NamespaceSettings) -> Document:
    """Return the *settings* of a namespace as a document."""
    return {
        "policy": _shown(LIMITS, settings.policy),
        "retention": _shown(RETENTION, settings.retention),
    }


def with_namespace_document(
    settings: NamespaceSettings, document: object
) -> NamespaceSettings:
    """
    Return *settings* with those in *document*; others do not change.

    Raises:
        InvalidRequest: The document has an unknown name, or an invalid value.
    """
    given = _mapping("the document", document, namespace_document_of(settings))
    found = {
        name: _group(name, group, getattr(settings, name), given[name], None)
        for name, group in (("policy", LIMITS), ("retention", RETENTION))
        if name in given
    }
    return replace(settings, **found)


def document_of_pairs(pairs: list[str]) -> Document:
    """
    Return the document of *pairs* such as ``retention.age=7d``.

    Raises:
        InvalidRequest: A pair has another form, or contradicts another one.
    """
    document: Document = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name.strip() or not equals:
            raise InvalidRequest(f"{pair!r} does not have the form NAME=VALUE")
        group, dot, setting = name.strip().partition(".")
        table = document.setdefault(group, {}) if dot else document
        if not isinstance(table, dict) or (setting or group) in table:
            raise InvalidRequest(f"{pair!r} contradicts another value of {group}")
        table[setting or group] = value_of(text)
    return document


def changes_between(before: Document, after: Document) -> list[Change]:
    """Return the settings in which two documents of one topic differ."""
    changes: list[Change] = []
    for name, value in before.items():
        if isinstance(value, dict) and isinstance(after[name], dict):
            changes += [
                Change(f"{name}.{inner}", each, after[name][inner])
                for inner, each in value.items()
                if each != after[name][inner]
            ]
        elif value != after[name]:
            changes.append(Change(name, value, after[name]))
    return changes


def summarize(value: object) -> str:
    """Return a value of a document on one line, without limits that do not limit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, dict):
        return str(value)
    shown = [
        f"{name}={summarize(each)}"
        for name, each in value.items()
        if each is False or each != 0
    ]
    return ", ".join(shown) or "no limits"


def _shown(settings: Mapping[str, Setting], owner: object) -> Document:
    """Return the *settings* of *owner* as a document."""
    return {
        name: setting.show(getattr(owner, setting.attribute))
        for name, setting in settings.items()
    }


def _group_shown(
    settings: Mapping[str, Setting], owner: object | None, absent: str
) -> Document | str:
    return absent if owner is None else _shown(settings, owner)


def _group(
    group: str,
    settings: Mapping[str, Setting],
    base: Any,
    given: object,
    absent: str | None,
) -> Any:
    """
    Return *base* with the *given* settings of a group.

    Returns None if the topic is not to have the group itself: if *given* is *absent*.

    Raises:
        InvalidRequest: A name is unknown, or a value is invalid.
    """
    if absent is not None and (given is None or given == absent):
        return None
    known = _shown(settings, base)
    table = _mapping(group, given, settings, absent)
    return replace(
        base,
        **{
            settings[name].attribute: _parsed(
                f"{group}.{name}", value, settings[name].parse
            )
            for name, value in table.items()
            # A text may be less exact than the value that it stands for.
            if value != known[name]
        },
    )


def _mapping(
    where: str, given: object, known: Mapping[str, object], absent: str | None = None
) -> Mapping[str, Any]:
    """
    Return *given*.

    Raises:
        InvalidRequest: It is not a mapping, or has a name that is not *known*.
    """
    if not isinstance(given, dict):
        word = f", or {absent!r}" if absent else ""
        raise InvalidRequest(
            f"{where} is {given!r}; it must have settings ({', '.join(known)}){word}"
        )
    prefix = "" if where == "the document" else f"{where}."
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"there is no setting {prefix}{name} that can change; the "
                f"settings are {', '.join(f'{prefix}{each}' for each in known)}"
                f"{did_you_mean(str(name), known)}"
            )
    return given


def _parsed(where: str, value: object, parse: Callable[[Any], Any]) -> Any:
    """
    Return the parsed *value* of the setting *where*.

    Raises:
        InvalidRequest: It is invalid.
    """
    try:
        return parse(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}") from None


def value_of(text: str) -> str | int | bool:
    """Return the value in a document that *text* stands for."""
    text = text.strip()
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isascii() and text.isdecimal() else text


def _exact_bytes(count: int) -> str:
    """Return *count* bytes in the largest unit that represents it exactly."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return f"{count}B"


def _or(
    word: str, show: Callable[[Any], Any], parse: Callable[[Any], Any]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions for a value that may be absent, which *word* says."""
    return (
        lambda value: word if value is None else show(value),
        lambda given: None if given in (None, word) else parse(given),
    )


def _parse_flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise InvalidRequest(f"{given!r} is not true or false")
    return given


def _parse_number(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise InvalidRequest(f"{given!r} is not a number of 0 or more")
    return given


def _parse_version(given: object) -> int:
    if (number := _parse_number(given)) < 1:
        raise InvalidRequest("0 is not the number of a version; the first one is 1")
    return number


def _parse_text(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InvalidRequest(f"{given!r} is not a name")
    return given


def _parse_reaction(given: object) -> CorruptionPolicy:
    try:
        return CorruptionPolicy(given)
    except ValueError:
        raise InvalidRequest(f"{given!r} is not stop or skip") from None


def _parse_time(given: object) -> float:
    return parse_duration(str(given))


def _choice(kind: type[Enum]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions for a value that is one of the words of *kind*."""
    return (
        lambda value: value.value,
        lambda given: parse_choice("the value", str(given), kind),
    )


def _itself(value: object) -> object:
    return value


INHERIT = "inherit"
NONE = "none"
DEFAULT = "default"

RETENTION = {
    "age": Setting("age_s", *_or(NONE, format_duration, _parse_time)),
    "size": Setting(
        "bytes_max", *_or(NONE, _exact_bytes, lambda given: parse_bytes(str(given)))
    ),
    "acknowledged": Setting("drops_acknowledged", _itself, _parse_flag),
}

SEALING = {
    "size": Setting(
        "seal_bytes",
        *_or("default", _exact_bytes, lambda given: parse_bytes(str(given))),
    ),
    "age": Setting(
        "seal_age_s",
        *_or("default", format_duration, lambda given: parse_duration(str(given))),
    ),
}

DEDUPLICATION = {
    "age": Setting("age_s", format_duration, lambda given: parse_duration(str(given))),
    "messages": Setting("messages_max", _itself, _parse_number),
}

LIMITS = {
    each.name: Setting(each.name, _itself, _parse_number)
    for each in fields(NamespacePolicy)
}

SCHEMA = {
    "subject": Setting("subject", _itself, _parse_text),
    "policy": Setting(
        "policy",
        lambda value: value.value,
        lambda given: SchemaPolicy.parse(str(given)),
    ),
    "validate_payload": Setting("validates_payload", _itself, _parse_flag),
    "version": Setting("version", *_or("any", _itself, _parse_version)),
    "min_version": Setting("version_min", *_or("any", _itself, _parse_version)),
}

FAILURE_POLICY = {
    "redeliveries": Setting("redeliveries_max", _itself, _parse_number),
    "ack_timeout": Setting(
        "ack_timeout_s", *_or("never", format_duration, _parse_time)
    ),
    "delay": Setting("redelivery_delay_s", format_duration, _parse_time),
    "delay_max": Setting("redelivery_delay_s_max", format_duration, _parse_time),
    "backoff": Setting("backoff", *_choice(Backoff)),
    "poison": Setting("poison", *_choice(PoisonPolicy)),
    "dead_letter_topic": Setting("dead_letter_topic", *_or(NONE, _itself, _parse_text)),
    "dead_letter_expired": Setting("dead_letter_expired", _itself, _parse_flag),
}

DISPATCH_LIMITS = {
    "unacked": Setting("unacked_messages_max", *_or(NONE, _itself, _parse_number)),
    "unacked_per_consumer": Setting(
        "unacked_messages_max_per_consumer", *_or(NONE, _itself, _parse_number)
    ),
}
