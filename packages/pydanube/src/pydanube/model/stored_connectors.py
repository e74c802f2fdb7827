"""
The connectors that a broker stores for the workers that run them.

A worker reports what it runs every few seconds.  What is wrong with a connector follows
from its definition, its last report and the time.
"""

from __future__ import annotations

from enum import Enum

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import SYSTEM_NAMESPACE

WORKERS_TOPIC = f"/{SYSTEM_NAMESPACE}/connectors"
"""The topic of workers: who may consume it is one.  It has no messages."""
POSITIONS_SUFFIX = ".positions"
"""The topic with the positions of a connector is its name and this."""

CONNECTORS_MAX = 1000
"""The most stored connectors."""
DEFINITION_BYTES_MAX = 64 * 1024
REPORTS_MAX = 500
"""The most reports in one request."""
ERROR_CHARACTERS_MAX = 500
"""The longest error in a report."""

REPORT_INTERVAL_S = 10.0
"""How often a worker reports at least."""
SILENT_S = 30.0
"""A connector whose last report is older than this has no worker."""
PICK_UP_S = 30.0
"""How long workers may take until they run a new definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorReport:
    """The facts that a worker reports about a stored connector that it runs."""

    connector: str
    worker: str
    """The name of the worker."""
    revision: int
    """The revision of the definition that it runs."""
    state: str
    """For example ``running``, ``retrying`` or ``failed``."""
    messages: int = 0
    """Published or written since the worker runs it."""
    lag: int | None = None
    retries: int = 0
    error: str = ""
    is_degraded: bool = False
    """Whether it has retried for longer than its ``unhealthy_after``."""
    changed_at: int = 0
    """When its state changed last, in microseconds since 1970."""
    reported_at: int = 0
    """When the broker has received the report."""


class ConnectorHealth(Enum):
    """The health of a stored connector."""

    HEALTHY = "healthy"
    """A worker runs it, or it has reached its end."""
    PAUSED = "paused"
    RETRYING = "retrying"
    DEGRADED = "degraded"
    """It has retried for longer than its ``unhealthy_after``."""
    FAILED = "failed"
    UNASSIGNED = "unassigned"
    """No worker runs it."""
    OUTDATED = "outdated"
    """A worker still runs an earlier version of its definition."""

    @property
    def is_problem(self) -> bool:
        """Whether somebody should look at it."""
        return self in {
            ConnectorHealth.DEGRADED,
            ConnectorHealth.FAILED,
            ConnectorHealth.UNASSIGNED,
            ConnectorHealth.OUTDATED,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnector:
    """A connector that a broker stores, with the last report of its worker."""

    name: str
    kind: str
    topic: str
    revision: int
    """Rises with each change of the definition."""
    restarts: int = 0
    """Rises with each restart that somebody has asked for."""
    is_paused: bool = False
    author: str = ""
    """The client that wrote the definition: ``user:NAME`` or ``anonymous``."""
    changed_at: int = 0
    """When the definition was changed last, in microseconds since 1970."""
    definition: str = ""
    """A JSON object as in a file of connectors; empty in lists."""
    report: ConnectorReport | None = None
    """The last report of a worker; None: none has run it."""

    def health(self, now: int) -> ConnectorHealth:
        """Return its health at *now*, in microseconds since 1970."""
        report = self.report
        if self.is_paused:
            return ConnectorHealth.PAUSED
        if report is None or now - report.reported_at > SILENT_S * 1e6:
            return ConnectorHealth.UNASSIGNED
        return self._health_of(report, now)

    def _health_of(self, report: ConnectorReport, now: int) -> ConnectorHealth:
        if report.revision != self.revision:
            is_late = now - self.changed_at > PICK_UP_S * 1e6
            return ConnectorHealth.OUTDATED if is_late else ConnectorHealth.HEALTHY
        if report.state == "failed":
            return ConnectorHealth.FAILED
        if report.is_degraded:
            return ConnectorHealth.DEGRADED
        is_retrying = report.state == "retrying"
        return ConnectorHealth.RETRYING if is_retrying else ConnectorHealth.HEALTHY

    def problem(self, now: int) -> str:
        """Return in words what somebody should look at; empty: nothing."""
        health, report = self.health(now), self.report
        if not health.is_problem:
            return ""
        if health is ConnectorHealth.UNASSIGNED:
            if report is None:
                return "no worker has run it; start one with 'danube connect work'"
            return f"no worker runs it any more; the last one was {report.worker}"
        assert report is not None
        if health is ConnectorHealth.OUTDATED:
            return (
                f"the worker {report.worker} still runs revision {report.revision} of "
                f"its definition, not {self.revision}"
            )
        words = "has failed" if health is ConnectorHealth.FAILED else "retries for long"
        return f"it {words} at the worker {report.worker}: {report.error}"
