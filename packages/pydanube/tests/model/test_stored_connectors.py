"""The health of a stored connector follows from its last report and the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydanube.model.stored_connectors import (
    PICK_UP_S,
    SILENT_S,
    ConnectorHealth,
    ConnectorReport,
    StoredConnector,
)

REPORT = ConnectorReport(
    connector="n", worker="w", revision=2, state="running", reported_at=10_000_000
)
STORED = StoredConnector(
    name="n", kind="k", topic="/default/n", revision=2, report=REPORT
)
NOW = 11_000_000
LATE = 10_000_000 + int(SILENT_S * 1e6) + 1


def reporting(**changes):
    return replace(STORED, report=replace(REPORT, **changes))


@pytest.mark.parametrize(
    ("stored", "now", "health"),
    [
        (STORED, NOW, ConnectorHealth.HEALTHY),
        (replace(STORED, is_paused=True, report=None), NOW, ConnectorHealth.PAUSED),
        (replace(STORED, report=None), NOW, ConnectorHealth.UNASSIGNED),
        (STORED, LATE, ConnectorHealth.UNASSIGNED),
        (reporting(state="failed"), NOW, ConnectorHealth.FAILED),
        (reporting(state="retrying"), NOW, ConnectorHealth.RETRYING),
        (reporting(state="retrying", is_degraded=True), NOW, ConnectorHealth.DEGRADED),
        (reporting(state="finished"), NOW, ConnectorHealth.HEALTHY),
        (replace(STORED, revision=3, changed_at=NOW), NOW, ConnectorHealth.HEALTHY),
        (
            replace(reporting(reported_at=LATE), revision=3, changed_at=NOW),
            NOW + int(PICK_UP_S * 1e6) + 1,
            ConnectorHealth.OUTDATED,
        ),
    ],
)
def test_health_follows_from_the_report(stored, now, health):
    assert stored.health(now) is health
    assert bool(stored.problem(now)) is health.is_problem
