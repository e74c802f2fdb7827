"""The state and the counts of a connector, for people and for programs."""

from __future__ import annotations

import time
from enum import Enum
from typing import Any

import msgspec

STEADY_S = 120.0
"""How long a connector must run after a failure until the next one is a new one."""


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
    changed_at: int = 0
    """When the state changed last, in microseconds since 1970."""
    retrying_since: int | None = None
    """When it failed first since it last stored or wrote a batch, or ran for long."""
    unhealthy_after_s: float = 300.0
    """How long it may retry until it is degraded."""

    def count_batch(self) -> None:
        """Count a batch that is stored or written now."""
        self.batches += 1
        self.last_batch_time = time.time_ns() // 1000
        if self.state is not State.RETRYING:
            self.retrying_since = None

    def enter(self, state: State, now: int) -> None:
        """
        Note the new *state* at *now*, in microseconds since 1970.

        A connector that fails whenever it is opened runs in between for a moment.
        """
        if state is State.RETRYING:
            if self.retrying_since is None or self._is_steady(now):
                self.retrying_since = now
        elif state not in {State.RUNNING, State.STARTING}:
            self.retrying_since = None
        self.state, self.changed_at = state, now

    def retrying_s(self, now: int) -> float:
        """Return for how long it has retried at *now*; 0 if it does not."""
        if self.retrying_since is None or self._is_steady(now):
            return 0.0
        return max(0.0, (now - self.retrying_since) / 1e6)

    def is_degraded(self, now: int) -> bool:
        """Return whether it has retried for too long at *now*."""
        return self.retrying_s(now) > self.unhealthy_after_s

    def _is_steady(self, now: int) -> bool:
        return self.state is State.RUNNING and now - self.changed_at >= STEADY_S * 1e6

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
