"""
The attributes of a dead letter that name its origin and the reason.

Attributes that Danube's clients know have the same names as in Danube.
"""

from __future__ import annotations

import json

ORIGINAL_TOPIC = "x-original-topic"
ORIGINAL_SUBSCRIPTION = "x-original-subscription"
ORIGINAL_OFFSET = "x-original-topic-offset"
ORIGINAL_PRODUCER = "x-original-producer"
ORIGINAL_PRODUCER_ID = "x-original-producer-id"
ORIGINAL_BROKER = "x-original-broker-addr"
POISON_POLICY = "x-poison-policy"
ATTEMPT = "x-delivery-attempt"
REASON = "x-failure-reason"
HISTORY = "x-dead-letter-history"
"""
The values of the attributes above at earlier times that it was dead-lettered, as JSON.

A list of objects with topic, subscription, offset, attempt and reason, oldest first.
"""
HANDLED_SUBSCRIPTION = "dead-letters"
"""The subscription of a dead-letter topic that handled dead letters are acked for."""
DIGITS_MAX = 20
"""The digits of the largest offset."""


def parse_history(text: str) -> list[dict[str, str]]:
    """
    Return the entries of the attribute *HISTORY*, of which it has those that are valid.

    Any producer can write the attribute, so it may be anything.
    """
    try:
        noted = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(noted, list):
        return []
    return [
        {name: value for name, value in each.items() if isinstance(value, str)}
        for each in noted
        if isinstance(each, dict)
    ]


def parse_count(text: str) -> int | None:
    """Return the number in an attribute, if it has one that an offset can be."""
    is_number = text.isdecimal() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None
