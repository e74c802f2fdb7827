"""
The alerts of a pipeline: conditions of its record and status, with when they changed.
Pure.

A condition that holds for long enough is reported once, and again when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

import msgspec

from pydanube.pipelines.progress import QueryProgress, QueryState, RunState, RunStatus
from pydanube.pipelines.run_records import Phase, RunRecord
from pydanube.pipelines.spec import AlertRule, Condition

SIGNAL_EXIT_CODES = frozenset({130, 143})
"""Those of runs that Ctrl-C and SIGTERM end."""


class AlertState(Enum):
    """Whether a condition holds."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an alert, sent as JSON."""

    text: str
    """A sentence for people, which chat programs show."""
    pipeline: str
    alert: str
    state: AlertState
    value: float
    """The measured number: messages, rows or seconds; 1 for a failure."""
    host: str
    time: str


@dataclass(slots=True)
class _Memory:
    """The state of a rule."""

    since: datetime | None = None
    """Since when its condition holds."""
    is_firing: bool = False

    def update(
        self, rule: AlertRule, value: float | None, now: datetime
    ) -> AlertState | None:
        """Note *value*, and return the new state of the alert if it has changed."""
        if value is None or value <= rule.limit:
            was_firing = self.is_firing
            self.since, self.is_firing = None, False
            return AlertState.RESOLVED if was_firing else None
        self.since = self.since or now
        if self.is_firing or (now - self.since).total_seconds() < rule.for_s:
            return None
        self.is_firing = True
        return AlertState.FIRING


@dataclass(slots=True)
class Alerts:
    """The rules of a pipeline, and which of them fire."""

    rules: Mapping[str, AlertRule]
    _memories: dict[str, _Memory] = field(default_factory=dict)

    def update(
        self, record: RunRecord, status: RunStatus | None, now: datetime
    ) -> Iterator[Notice]:
        """Yield what has begun or is over by *now*."""
        for name, rule in self.rules.items():
            memory = self._memories.setdefault(name, _Memory())
            value, text = _measure(rule, record, status, now)
            change = memory.update(rule, value, now)
            if change is None:
                continue
            if change is AlertState.RESOLVED:
                text = f"over: {text}" if text else "over"
            yield Notice(
                text=f"pipeline {record.pipeline}, alert {name}: {text}",
                pipeline=record.pipeline,
                alert=name,
                state=change,
                value=value or 0.0,
                host=record.host,
                time=now.isoformat(timespec="seconds"),
            )


def _measure(
    rule: AlertRule, record: RunRecord, status: RunStatus | None, now: datetime
) -> tuple[float | None, str]:
    """Return the value that *rule* compares, and what it means."""
    if rule.when is Condition.FAILED:
        return _failure(record, status)
    if status is None or record.phase is not Phase.RUNNING:
        return None, ""
    found = [
        (value, query)
        for query in status.queries
        if (value := _value(rule.when, query, now)) is not None
    ]
    if not found:
        return None, ""
    value, query = max(found, key=lambda each: each[0])
    return value, _TEXTS[rule.when].format(value=value, query=query.name)


_TEXTS = {
    Condition.LAG: "the query {query} has {value:,.0f} unread messages",
    Condition.BATCH_DURATION: "a micro-batch of the query {query} took {value:.0f} s",
    Condition.BATCH_AGE: "the query {query} has had no micro-batch for {value:.0f} s",
    Condition.BROKEN_ROWS: "{value:,.0f} rows of the query {query} broke expectations",
}


def _failure(record: RunRecord, status: RunStatus | None) -> tuple[float, str]:
    code = record.exit_code
    is_over = record.phase is not Phase.RUNNING
    has_failed = is_over and code not in {None, 0, *SIGNAL_EXIT_CODES}
    if not has_failed:
        return 0.0, "it runs again" if record.phase is Phase.RUNNING else "it has ended"
    error = ""
    if status is not None and status.state is RunState.FAILED and status.error:
        error = f": {status.error}"
    following = f"; it starts again at {record.next_start}" if record.next_start else ""
    return 1.0, f"it failed with exit code {code}{error}{following}"


def _value(when: Condition, query: QueryProgress, now: datetime) -> float | None:
    if when is Condition.LAG:
        return query.lag
    if when is Condition.BATCH_DURATION:
        return query.duration_s
    if when is Condition.BROKEN_ROWS:
        return sum(query.broken.values())
    if query.state is not QueryState.RUNNING or query.last_batch_time is None:
        return None
    return max(0.0, now.timestamp() - query.last_batch_time / 1e6)
