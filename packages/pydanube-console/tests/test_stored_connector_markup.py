"""Stored connectors are shown with their health, and problems first."""

from dataclasses import replace

from pydanube.model.stored_connectors import ConnectorReport, StoredConnector
from pydanube_console.connector_markup import ROWS_MAX
from pydanube_console.stored_connector_markup import (
    concerns_of_stored,
    render_stored,
    render_stored_connector,
)

NOW = 2_000_000
REPORT = ConnectorReport(
    connector="a", worker="w", revision=1, state="running", lag=1200, reported_at=NOW
)
RUNNING = StoredConnector(
    name="a",
    kind="http-sink",
    topic="/default/t",
    revision=1,
    author="user:ada",
    definition='{"kind": "http-sink", "options": {"u": "<b>"}, "topic": "/default/t"}',
    report=REPORT,
)
FAILED = replace(
    RUNNING, name="z", report=replace(REPORT, state="failed", error="<i>no")
)


def test_connectors_with_problems_come_first_and_texts_are_escaped():
    shown = render_stored([RUNNING, FAILED], NOW)
    assert shown.index("z<div") < shown.index("a<div")
    assert "it has failed at the worker w: &lt;i&gt;no" in shown
    assert "1,200" in shown


def test_long_lists_are_cut_and_say_so():
    many = [replace(RUNNING, name=f"n{number}") for number in range(ROWS_MAX + 1)]
    assert f"The first {ROWS_MAX} of {ROWS_MAX + 1}." in render_stored(many, NOW)


def test_definition_is_shown_as_a_file():
    shown = render_stored_connector(RUNNING, NOW)
    assert "connectors:\n  a:\n    kind: http-sink\n    topic: /default/t" in shown
    assert "&lt;b&gt;" in shown
    assert "user:ada" in shown


def test_problems_are_concerns():
    alone = replace(RUNNING, name="n", report=None)
    found = list(concerns_of_stored([RUNNING, FAILED, alone], NOW))
    assert [each.kind for each in found] == ["bad", "bad"]
    assert found[1].text.startswith("stored connector n: no worker has run it")
    assert found[1].href == "/connectors?name=n"
