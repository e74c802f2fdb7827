"""
The attributes of a dead letter that name its origin and the reason.

Attributes that Danube's clients know have the same names as in Danube.
"""

from __future__ import annotations

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
