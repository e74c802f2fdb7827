"""The connectors that the broker stores, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydanube.model.quantity_formats import format_age, format_count
from pydanube.model.stored_connectors import ConnectorHealth, StoredConnector
from pydanube_connect.applying import Action, Planned
from pydanube_connect.definitions import file_of
from pydanube_console.connector_markup import (
    ERROR_CHARACTERS_MAX,
    ROWS_MAX,
    shortened,
)
from pydanube_console.pure.attention import Concern
from pydanube_console.pure.markup import (
    Column,
    Html,
    address,
    badge,
    code,
    element,
    facts,
    join,
    link,
    panel,
    table,
)

KINDS = {
    ConnectorHealth.HEALTHY: "good",
    ConnectorHealth.PAUSED: "warn",
    ConnectorHealth.RETRYING: "warn",
    ConnectorHealth.DEGRADED: "bad",
    ConnectorHealth.FAILED: "bad",
    ConnectorHealth.UNASSIGNED: "bad",
    ConnectorHealth.OUTDATED: "warn",
}
"""The kind of the badge of each health."""

COLUMNS = [
    Column("Connector"),
    Column("Health"),
    Column("Lag", is_number=True),
    Column("Messages", is_number=True, is_wide_only=True),
    Column("Worker", is_wide_only=True),
    Column("Problem", is_wide_only=True),
]


def render_stored(connectors: Sequence[StoredConnector], now: int) -> Html:
    """Return the table of stored connectors at *now*, those with problems first."""
    ordered = sorted(
        connectors, key=lambda each: (not each.health(now).is_problem, each.name)
    )
    shown = table(
        COLUMNS,
        [_row(each, now) for each in ordered[:ROWS_MAX]],
        caption="Stored connectors",
        empty="The broker stores no connector of a topic that you may see.",
    )
    more = len(connectors) - ROWS_MAX
    note = element("p", f"The first {ROWS_MAX} of {len(connectors)}.")
    return panel("Stored in the broker", note if more > 0 else "", shown)


def _row(connector: StoredConnector, now: int) -> tuple[object, ...]:
    report = connector.report
    topic = link(connector.topic, "/topic", name=connector.topic)
    what = element("div", connector.kind, " · ", topic, class_="muted")
    lag = None if report is None else report.lag
    return (
        join([connector.name, what]),
        _health(connector, now),
        "" if lag is None else format_count(lag),
        "" if report is None else format_count(report.messages),
        "" if report is None else report.worker,
        shortened(connector.problem(now), ERROR_CHARACTERS_MAX),
    )


def _health(connector: StoredConnector, now: int) -> Html:
    health = connector.health(now)
    return badge(health.value, KINDS[health])


def render_stored_connector(connector: StoredConnector, now: int) -> Html:
    """Return the facts and the definition of one connector."""
    report = connector.report
    pairs: list[tuple[str, object]] = [("Health", _health(connector, now))]
    if problem := connector.problem(now):
        pairs.append(("Problem", shortened(problem)))
    if report is not None:
        age = format_age(max(0.0, (now - report.reported_at) / 1e6))
        pairs.append(("Worker", f"{report.worker}, which reported {age} ago"))
        if report.error and report.error not in problem:
            pairs.append(("Last error", shortened(report.error)))
    pairs += [
        ("Author", connector.author),
        ("Revision", format_count(connector.revision)),
    ]
    text = file_of(connector.name, connector.definition)
    return panel(f"{connector.name} in the broker", facts(pairs), code(text))


def render_planned(planned: Iterable[Planned]) -> Html:
    """Return what storing definitions would change."""
    lines = []
    for each in planned:
        kind = "plain" if each.action is Action.UNCHANGED else "warn"
        lines.append(
            element("p", each.definition.name, " ", badge(each.action.value, kind))
        )
        lines += [element("p", change, class_="muted") for change in each.changes]
    return join(lines)


def concerns_of_stored(
    connectors: Iterable[StoredConnector], now: int
) -> Iterable[Concern]:
    """Yield what is wrong with stored connectors at *now*."""
    for each in connectors:
        if problem := each.problem(now):
            is_bad = KINDS[each.health(now)] == "bad"
            text = f"stored connector {each.name}: {problem}"
            href = address("/connectors", name=each.name)
            yield Concern("bad" if is_bad else "warn", shortened(text), href)
