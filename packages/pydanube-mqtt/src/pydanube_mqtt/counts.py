"""The counts of the MQTT listener since the broker started."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass


@dataclass(slots=True)
class MqttCounts:
    """Counts of the listener; see ``pydanube/model/metrics.py``."""

    received: int = 0
    """Messages that clients published."""
    sent: int = 0
    """Messages that were sent to clients."""
    dropped: int = 0
    """Messages of QoS 0 that were not sent, because too many waited."""
    unmapped: int = 0
    """Messages of the topics that have no topic of MQTT."""
    lost: int = 0
    """Messages that retention dropped before a session could get them."""
    wills: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    """Messages that did not match their schema, by what was done to them."""
    refused: Counter[str] = field(default_factory=Counter)
    """Refused connections, publications and subscriptions, by reason."""
