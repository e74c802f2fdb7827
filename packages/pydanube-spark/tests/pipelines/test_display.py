"""Tests of the displays of a run."""

import io
import json

from rich.console import Console

from pydanube_spark.pipelines.display import (
    COLUMNS,
    JsonDisplay,
    LineDisplay,
    LiveTable,
    cells_of,
    display_for,
)
from pydanube_spark.pipelines.pure.progress import QueryProgress, QueryState


def query(**more):
    return QueryProgress(name="q", writes_to="parquet", **more)


DONE = query(
    state=QueryState.RUNNING,
    batch=3,
    rows=12_000,
    input_rate=1234.5,
    processing_rate=4000.0,
    lag=0,
    duration_s=0.25,
    error="it broke",
)


def test_line_display_writes_changes_only():
    out = io.StringIO()
    display = LineDisplay(out)
    display.begin()
    display.show([query()])
    display.show([query()])
    display.show([DONE])
    display.end()
    assert out.getvalue() == (
        "q: waiting\n"
        "q: running, batch 3, 12,000 rows, 4,000 rows/s, 1,234 rows/s in, lag 0, "
        "took 0.25 s, last error: it broke\n"
    )


def test_json_display_writes_all_fields():
    out = io.StringIO()
    display = JsonDisplay(out)
    display.begin()
    display.say("hello")
    display.show([DONE])
    display.show([DONE])
    display.end()
    said, shown = map(json.loads, out.getvalue().splitlines())
    assert said == {"event": "message", "text": "hello"}
    assert shown["event"] == "query"
    assert (shown["state"], shown["lag"], shown["duration_s"]) == ("running", 0, 0.25)


def test_live_table_has_a_row_per_query():
    out = io.StringIO()
    display = LiveTable(Console(file=out, force_terminal=True, width=200))
    display.begin()
    display.say("[hello]")
    display.show([query(), DONE])
    display.end()
    for words in ("[hello]", "Query", "12,000", "it broke", "0.25 s"):
        assert words in out.getvalue()


def test_unknown_values_are_dashes():
    assert len(cells_of(query())) == len(COLUMNS)
    assert set(cells_of(query())[3:]) == {"\u2013", "0"}


def test_display_depends_on_format_and_stream():
    assert isinstance(display_for("json", io.StringIO()), JsonDisplay)
    assert isinstance(display_for("table", io.StringIO()), LineDisplay)


def test_line_names_the_broken_expectations():
    stream = io.StringIO()
    broken = {"parsed.a": 1200, "parsed.b": 0}
    LineDisplay(stream).show([QueryProgress(name="q", writes_to="w", broken=broken)])
    assert stream.getvalue() == "q: waiting, broken: parsed.a 1,200\n"
