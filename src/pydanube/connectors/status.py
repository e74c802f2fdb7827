"""The state and the counts of a connector, for people and for programs."""

from __future__ import annotations

import time
from enum import Enum
from typing import Any

import msgspec


class State(Enum):
    """The state of a connector."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    FINISHED = "finished"
    """The source has no more messages."""
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the connector does not run any more."""
        return self in {State.FINISHED, State.STOPPED, State.FAILED}


class ConnectorStatus(msgspec.Struct, kw_only=True):
    """The state and the counts of one connector since its process started."""

    connector: str
    kind: str
    topic: str
    state: State = State.STARTING
    messages: int = 0
    """Published by a source, or written by a sink."""
    bytes: int = 0
    """The size of their payloads."""
    batches: int = 0
    last_batch_time: int | None = None
    """When the last one was stored or written, in microseconds since 1970."""
    dropped: int = 0
    """The records that the transform of a source has dropped."""
    dead_letters: int = 0
    """The messages that could not be published or written."""
    refused: int = 0
    """The records that the source has refused, such as requests."""
    retries: int = 0
    lag: int | None = None
    """How many messages wait in the source, or in the topic for a sink."""
    position: Any = None
    """Where a source with positions continues."""
    error: str | None = None
    """The last error; it stays when the connector runs again."""

    def count_batch(self) -> None:
        """Count a batch that is stored or written now."""
        self.batches += 1
        self.last_batch_time = time.time_ns() // 1000

    def line(self) -> str:
        """Return the status on one line."""
        return f"{self.connector}: {self.summary()}"

    def summary(self) -> str:
        """Return the state, the counts and the last error, on one line."""
        parts = [self.state.value, f"{self.messages:,} messages"]
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        for count, name in (
            (self.dropped, "dropped"),
            (self.dead_letters, "dead letters"),
            (self.refused, "refused"),
            (self.retries, "retries"),
        ):
            if count:
                parts.append(f"{count:,} {name}")
        if self.error is not None:
            parts.append(f"last error: {self.error}")
        return ", ".join(parts)
