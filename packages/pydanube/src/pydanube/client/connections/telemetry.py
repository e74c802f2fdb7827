"""The interface between clients and a telemetry system such as OpenTelemetry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from pydanube.client.counters import ClientCounters
from pydanube.client.messages.messages import Message, MessageBatch


class Counted(Protocol):
    """A client as its telemetry sees it."""

    url: str

    def counters(self) -> ClientCounters: ...


class Injected(dict[str, str]):
    """The attributes of a message that carry the context of its trace already."""


class SendSpan(ABC):
    """The time from publishing messages to their acknowledgement."""

    attributes: Injected
    """The attributes of the messages, with the context of the span."""

    @abstractmethod
    def end(self, error: BaseException | None) -> None:
        """End the span, with the error of the messages if there is one."""


class Telemetry(ABC):
    """Traces and measures the clients that are connected with it."""

    @abstractmethod
    def watching(self, client: Counted) -> AbstractContextManager[None]:
        """Report the counters of *client* while the body runs."""

    @abstractmethod
    def processing(
        self, messages: Message | MessageBatch
    ) -> AbstractContextManager[object]:
        """Trace the body, which processes *messages*."""

    @abstractmethod
    def begin_send(
        self, topic: str, count: int, attributes: Mapping[str, str] | None
    ) -> SendSpan:
        """Begin to publish *count* messages to *topic*."""
