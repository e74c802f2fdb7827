"""The interface between a broker and a system for traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydanube.model.histograms import Exemplar
from pydanube.model.names import TopicName
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.pure.producer_session import OnPublished


class Tracing(Protocol):
    """Traces some batches on their way through the broker."""

    @property
    def published(self) -> Mapping[int, Exemplar]:
        """The last batch whose storing was traced, for each bucket of a histogram."""

    @property
    def delivered(self) -> Mapping[int, Exemplar]:
        """The last batch whose first delivery was traced, for each bucket."""

    def publishing(
        self, topic: TopicName, frame: BatchFrame, done: OnPublished
    ) -> OnPublished:
        """
        Trace the time until *frame*, which has arrived now, is stored.

        Returns: A function to call instead of *done*; it calls *done*.
        """

    def deliver(
        self, topic: TopicName, subscription: str, frame: BatchFrame, attempt: int
    ) -> None:
        """Trace the delivery of *frame*, which is sent to a consumer now."""
