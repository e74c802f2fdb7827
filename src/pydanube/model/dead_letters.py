"""
The attributes by which a dead letter says where it comes from, and why.

Those that the original's clients know have the original's names.
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
JSON: what the attributes above said each time it was dead-lettered before.

A list of objects with topic, subscription, offset, attempt and reason, oldest first.
"""
