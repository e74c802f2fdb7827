"""The connectors that a console knows, as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pydanube.model.quantity_formats import format_age, format_bytes, format_count
from pydanube_connect.status import ConnectorStatus, State
from pydanube_console.connector_monitor import ProcessMonitor, WatchedConnector
from pydanube_console.pure.charts import short_number, sparkline
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    element,
    facts,
    join,
    link,
    panel,
    table,
)

ROWS_MAX = 500
ERROR_CHARACTERS_MAX = 120
"""How much of an error is in the table."""
TEXT_CHARACTERS_MAX = 2000
"""How much of an error or of a position is shown for one connector."""

KINDS = {
    State.STARTING: "plain",
    State.RUNNING: "good",
    State.RETRYING: "warn",
    State.PAUSED: "warn",
    State.FINISHED: "plain",
    State.STOPPED: "plain",
    State.FAILED: "bad",
}
"""The kind of the badge of each state."""

NOT_GIVEN = (
    "This console was not told where connectors of files run: start it with "
    "--connectors local, or with the address of each process, as in "
    "--connectors http://127.0.0.1:9500."
)


def visible_of(
    processes: Sequence[ProcessMonitor], topics: Collection[str]
) -> Iterator[tuple[ProcessMonitor, WatchedConnector]]:
    """Yield the connectors of *topics*, each with its process."""
    for process in processes:
        for name in sorted(process.connectors):
            if process.connectors[name].status.topic in topics:
                yield process, process.connectors[name]


def render_connectors(
    processes: Sequence[ProcessMonitor], topics: Collection[str], now_us: int
) -> Html:
    """Return the connectors of *topics*, and the processes that do not answer."""
    rows = [
        _row(process, each, now_us) for process, each in visible_of(processes, topics)
    ]
    columns = [
        Column("Connector"),
        Column("State"),
        Column("Lag", is_number=True),
        Column("Messages", is_number=True, is_wide_only=True),
        Column("", is_wide_only=True),
        Column("Messages/s", is_number=True, is_wide_only=True),
        Column("Retries", is_number=True, is_wide_only=True),
        Column("Last activity", is_number=True, is_wide_only=True),
        Column("Last error", is_wide_only=True),
    ]
    more = len(rows) - ROWS_MAX
    note = element("p", f"The first {ROWS_MAX} of {len(rows)}.") if more > 0 else ""
    shown = table(
        columns,
        rows[:ROWS_MAX],
        caption="Connectors",
        empty="No process runs a connector of a topic that you may see.",
    )
    return join([_silent(processes), panel("Connectors", note, shown)])


def _row(
    process: ProcessMonitor, watched: WatchedConnector, now_us: int
) -> tuple[object, ...]:
    each = watched.status
    rate = watched.rates[-1] if watched.rates else 0.0
    label = f"messages per second, now {short_number(rate)}"
    topic = link(each.topic, "/topic", name=each.topic)
    what = element("div", each.kind, " · ", topic, class_="muted")
    return (
        join([each.connector, what]),
        _state(process, each),
        "" if each.lag is None else format_count(each.lag),
        format_count(each.messages),
        sparkline(watched.rates, label=label),
        short_number(rate),
        format_count(each.retries) if each.retries else "",
        _activity(each, now_us),
        shortened(each.error or "", ERROR_CHARACTERS_MAX),
    )


def _state(process: ProcessMonitor, each: ConnectorStatus) -> Html:
    if process.error:
        return badge("unreachable", "bad")
    return badge(each.state.value, KINDS[each.state])


def _activity(each: ConnectorStatus, now_us: int) -> str:
    if each.last_batch_time is None:
        return "none yet"
    return f"{format_age(max(0.0, (now_us - each.last_batch_time) / 1e6))} ago"


def shortened(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """Return *text*, or its beginning."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]} …"


def _silent(processes: Sequence[ProcessMonitor]) -> Html:
    """Return the processes that have not answered, or do not answer any more."""
    rows = []
    for each in processes:
        if each.error:
            shown = badge("unreachable", "bad")
            rows.append((each.process.url, shown, shortened(each.error)))
        elif not each.has_taken:
            rows.append((each.process.url, badge("asking"), "No answer yet."))
    if not rows:
        return Html("")
    columns = [Column("Address"), Column("State"), Column("Why")]
    title = "Processes that do not answer"
    return panel(title, table(columns, rows, caption=title))


def render_connector(
    process: ProcessMonitor, watched: WatchedConnector, *, has_position: bool
) -> Html:
    """Return the facts of one connector, with its position if *has_position*."""
    each = watched.status
    counts = [
        ("Process", process.process.url),
        ("Messages", f"{format_count(each.messages)} ({format_bytes(each.bytes)})"),
        ("Batches", format_count(each.batches)),
        ("Dropped by the transform", format_count(each.dropped)),
        ("Dead letters", format_count(each.dead_letters)),
        ("Refused", format_count(each.refused)),
        ("Retries", format_count(each.retries)),
    ]
    shown = [(name, value) for name, value in counts if value != "0"]
    if has_position and each.position is not None:
        shown.append(("Continues at", shortened(str(each.position))))
    if each.error is not None:
        shown.append(("Last error", shortened(each.error)))
    if not process.process.token:
        text = "The console has no token of this process, so it can only look."
        shown.append(("Changes", text))
    return panel(f"{each.connector} since its process started", facts(shown))
