"""
Errors of single topics, which end neither the broker nor its other topics.

A task that opens, closes or changes many topics goes on with the others if one fails.
"""

from __future__ import annotations

import logging

from pydanube.model.errors import BrokerError
from pydanube.model.names import TopicName

log = logging.getLogger(__name__)


class TopicFailures:
    """Reports errors of topics, and counts the unexpected ones."""

    def __init__(self) -> None:
        self.count = 0
        """The number of errors that only a bug explains."""

    def report(self, name: TopicName | str, step: str, error: Exception) -> None:
        """Log that a *step* of a topic has failed."""
        if isinstance(error, BrokerError):
            log.warning("%s: %s failed: %s", name, step, error)
            return
        self.count += 1
        log.error("%s: %s failed unexpectedly", name, step, exc_info=error)
