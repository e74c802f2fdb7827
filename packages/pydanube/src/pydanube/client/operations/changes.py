"""The settings of topics, subscriptions and namespaces that one call changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from pydanube.model.choices import CorruptionPolicyName
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    CorruptionPolicy,
    Deduplication,
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    Retention,
)
from pydanube.model.positions import parse_choice
from pydanube.model.schemas import TopicSchema
from pydanube.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


class TopicChanges(TypedDict, total=False):
    """The settings that ``Topics.configure`` changes."""

    limits: NamespacePolicy | None
    retention: Retention | None
    on_corruption: CorruptionPolicyName
    seal_bytes: int | None
    seal_age_s: float | None
    deduplication: Deduplication | None
    schema: TopicSchema | None


class SubscriptionChanges(TypedDict, total=False):
    """The settings that ``Subscriptions.configure`` changes."""

    failure_policy: FailurePolicy | None
    limits: DispatchLimits | None
    is_paused: bool


class NamespaceChanges(TypedDict, total=False):
    """The settings that ``Namespaces.configure`` changes."""

    policy: NamespacePolicy
    retention: Retention


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
    if "on_corruption" in changes:
        word = changes["on_corruption"]
        chosen = parse_choice("on_corruption", word, CorruptionPolicy)
        changes = {**changes, "on_corruption": chosen}
    return model(**changes)


def changes_of(old: S, new: S) -> Any:
    """Return the changes that turn the settings *old* into *new*, as keywords."""
    found = {
        each.name: getattr(new, each.name)
        for each in fields(old)
        if getattr(old, each.name) != getattr(new, each.name)
    }
    if "on_corruption" in found:
        found["on_corruption"] = found["on_corruption"].value
    return found
