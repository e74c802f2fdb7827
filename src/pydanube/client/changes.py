"""The settings of topics and subscriptions that one call changes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from pydanube.model.choices import (
    BackoffName,
    CorruptionPolicyName,
    PoisonPolicyName,
)
from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    Backoff,
    CorruptionPolicy,
    Deduplication,
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    Retention,
)
from pydanube.model.positions import parse_choice
from pydanube.model.schemas import TopicSchema
from pydanube.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


class TopicChanges(TypedDict, total=False):
    """The settings that ``Client.configure_topic`` changes."""

    limits: NamespacePolicy | None
    retention: Retention | None
    on_corruption: CorruptionPolicyName
    seal_bytes: int | None
    seal_age_s: float | None
    deduplication: Deduplication | None
    schema: TopicSchema | None


class SubscriptionChanges(TypedDict, total=False):
    """The settings that ``Client.configure_subscription`` changes."""

    failure_policy: FailurePolicy | None
    limits: DispatchLimits | None
    is_paused: bool


class FailureSettings(TypedDict, total=False):
    """The fields of a FailurePolicy, with words for the choices."""

    redeliveries_max: int
    ack_timeout_s: float | None
    redelivery_delay_s: float
    redelivery_delay_s_max: float
    backoff: BackoffName
    poison: PoisonPolicyName
    dead_letter_topic: str | None
    dead_letter_expired: bool


_CHOICES: dict[str, type[Enum]] = {
    "on_corruption": CorruptionPolicy,
    "backoff": Backoff,
    "poison": PoisonPolicy,
}


def settings_of(model: type[S], changes: Mapping[str, Any]) -> S:
    """
    Return a *model* with the settings in *changes*, and defaults for the others.

    Raises:
        InvalidRequest: There are no changes, or there is no such setting or choice.
    """
    known = [each.name for each in fields(model)]
    if not changes:
        raise InvalidRequest(
            f"no setting is given; the settings that can change are {', '.join(known)}"
        )
    for name in changes:
        if name not in known:
            raise InvalidRequest(
                f"there is no setting {name!r} that can change; the settings are "
                f"{', '.join(known)}{did_you_mean(name, known)}"
            )
    chosen = {
        name: parse_choice(name, changes[name], _CHOICES[name])
        for name in changes.keys() & _CHOICES.keys()
    }
    return model(**{**changes, **chosen})


def changes_of(old: TopicSettings, new: TopicSettings) -> TopicChanges:
    """Return the changes that turn the settings *old* of a topic into *new*."""
    found = {
        each.name: getattr(new, each.name)
        for each in fields(TopicSettings)
        if getattr(old, each.name) != getattr(new, each.name)
    }
    if "on_corruption" in found:
        found["on_corruption"] = new.on_corruption.value
    return cast("TopicChanges", found)
