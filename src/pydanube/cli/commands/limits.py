"""The limits of a namespace or topic, as options and as output."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy

LABELS = {
    "max_producers_per_topic": "Producers per topic",
    "max_subscriptions_per_topic": "Subscriptions per topic",
    "max_consumers_per_topic": "Consumers per topic",
    "max_consumers_per_subscription": "Consumers per subscription",
    "max_publish_rate": "Published messages per second and topic",
    "max_subscription_dispatch_rate": "Delivered messages per second and subscription",
    "max_message_size": "Bytes per message",
}
"""The label of each limit."""

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=NUMBER",
        help="A limit; 0 means no limit. May be repeated. The names are "
        + ", ".join(LABELS)
        + ".",
    ),
]


def with_settings(limits: NamespacePolicy, settings: list[str]) -> NamespacePolicy:
    """
    Return *limits* with *settings* such as ``max_publish_rate=1000`` applied.

    Raises:
        InvalidRequest: A setting does not name a limit, or has no number.
    """
    given: dict[str, int] = {}
    for setting in settings:
        name, equals, number = setting.partition("=")
        field_name = name.strip().replace("-", "_")
        if field_name not in LABELS:
            raise InvalidRequest(
                f"unknown limit {name!r}; use one of {', '.join(LABELS)}"
            )
        if not equals or not number.strip().isdecimal():
            raise InvalidRequest(
                f"{setting!r} does not have the form {field_name}=NUMBER"
            )
        given[field_name] = int(number)
    return replace(limits, **given)


def limit_fields(limits: NamespacePolicy) -> list[tuple[str, object]]:
    """Return the limits with their labels."""
    return [
        (LABELS[field.name], getattr(limits, field.name) or "no limit")
        for field in fields(limits)
    ]
