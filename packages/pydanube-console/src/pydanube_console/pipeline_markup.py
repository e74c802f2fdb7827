"""The pipelines that a console knows, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydanube.model.quantity_formats import format_age, format_count
from pydanube_console.connector_markup import ERROR_CHARACTERS_MAX, shortened
from pydanube_console.pipeline_monitor import WatchedPipeline
from pydanube_console.pure.charts import (
    Line,
    chart,
    charts_in_panels,
    short_number,
    sparkline,
)
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    code,
    element,
    facts,
    join,
    link,
    panel,
    table,
)
from pydanube_spark.pipelines.display import COLUMNS, cells_of

LINES_MAX = 300
LINE_CHARACTERS_MAX = 1000

NOT_GIVEN = (
    "This console was not told about pipelines: start it with --pipelines local for "
    "those that you run on this machine, or with the state directory of each pipeline."
)
NOT_PERMITTED = "Pipelines need the permission cluster_admin on cluster."
QUERY_KINDS = {"running": "good", "retrying": "warn", "failed": "bad"}
"""The kind of the badge of the states of queries that are not plain."""
NUMBERS = {"Batch", "Rows", "In/s", "Done/s", "Lag", "Took"}
WIDE_ONLY = {"Writes to", "Batch", "In/s", "Took", "Broken", "Last error"}


def state_of(pipeline: WatchedPipeline) -> Html:
    """Return the state of the run as a label."""
    text = pipeline.run.shown
    if text in {"failed", "died"}:
        return badge(text, "bad")
    if text == "running":
        return badge(text, "good")
    return badge(text, "warn" if text == "stopping" else "plain")


def render_pipelines(pipelines: Iterable[WatchedPipeline], now_us: int) -> Html:
    """Return the list of pipelines."""
    rows = [_row(each, now_us) for each in pipelines]
    columns = [
        Column("Pipeline"),
        Column("State"),
        Column("Lag", is_number=True),
        Column("Rows", is_number=True, is_wide_only=True),
        Column("", is_wide_only=True),
        Column("Rows/s", is_number=True, is_wide_only=True),
        Column("Batches", is_number=True, is_wide_only=True),
        Column("Last batch", is_number=True, is_wide_only=True),
        Column("Restarts", is_number=True, is_wide_only=True),
        Column("Last error", is_wide_only=True),
    ]
    empty = "No pipeline was run there."
    shown = table(columns, rows, caption="Pipelines", empty=empty)
    return panel("Pipelines", shown)


def _row(each: WatchedPipeline, now_us: int) -> tuple[object, ...]:
    rate = each.rates[-1] if each.rates else 0.0
    record = each.run.record
    return (
        link(each.run.name, "/pipeline", id=each.id),
        state_of(each),
        "" if each.lag is None else format_count(each.lag),
        format_count(each.rows),
        sparkline(each.rates, label=f"rows per second, now {short_number(rate)}"),
        short_number(rate),
        format_count(sum(query.batches for query in each.queries)),
        _last_batch(each, now_us),
        format_count(record.restarts) if record is not None and record.restarts else "",
        shortened(each.run.last_error or "", ERROR_CHARACTERS_MAX),
    )


def _last_batch(each: WatchedPipeline, now_us: int) -> str:
    times = [query.last_batch_time for query in each.queries if query.last_batch_time]
    if not times:
        return "none yet"
    return f"{format_age(max(0.0, (now_us - max(times)) / 1e6))} ago"


def render_run(each: WatchedPipeline, interval_s: float) -> Html:
    """Return the rates, the facts and the queries of a run."""
    charts = charts_in_panels(
        [
            chart("Rows per second", [Line("read", each.rates)], interval_s=interval_s),
            chart("Lag", [Line("messages", each.lags)], interval_s=interval_s),
        ]
    )
    rows = [
        [
            badge(cell, QUERY_KINDS.get(cell, "plain")) if name == "State" else cell
            for name, cell in zip(COLUMNS, cells_of(query), strict=True)
        ]
        for query in each.queries
    ]
    columns = [
        Column(name, is_number=name in NUMBERS, is_wide_only=name in WIDE_ONLY)
        for name in COLUMNS
    ]
    empty = "The run has reported no queries."
    queries = table(columns, rows, caption="Queries", empty=empty)
    return join([charts, panel("Queries", queries), panel("Run", facts(_facts(each)))])


def _facts(each: WatchedPipeline) -> list[tuple[str, object]]:
    run, record = each.run, each.run.record
    shown: list[tuple[str, object]] = [("State", state_of(each))]
    if record is not None:
        shown += [
            ("File", record.file),
            ("Process", f"{record.pid} on {record.host}"),
            ("Since", record.since),
            ("Restarts", record.restarts),
            ("Last success", record.last_success),
            ("Ended", record.ended),
            ("Last exit code", record.exit_code),
        ]
    shown += [
        ("State directory", run.state.path),
        ("Last error", shortened(run.last_error) if run.last_error else None),
    ]
    return [(name, value) for name, value in shown if value is not None]


def render_log(lines: Sequence[str], file: object) -> Html:
    """Return the last lines of a log."""
    if not lines:
        return panel("Log", element("p", f"{file} is empty.", class_="muted"))
    shown = [shortened(line, LINE_CHARACTERS_MAX) for line in lines[-LINES_MAX:]]
    note = f"The last lines of {file}; 'danube pipeline logs' shows more."
    text = element(
        "div",
        code("\n".join(shown)),
        class_="log",
        tabindex="0",
        role="region",
        aria_label="The end of the log",
    )
    return panel("Log", element("p", note, class_="muted"), text)
