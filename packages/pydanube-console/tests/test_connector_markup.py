"""Connectors are shown with their state, and only those of given topics."""

from dataclasses import dataclass

from pydanube_connect.status import ConnectorStatus, State
from pydanube_console.connector_markup import (
    TEXT_CHARACTERS_MAX,
    render_connector,
    render_connectors,
    shortened,
)
from pydanube_console.connector_monitor import ProcessMonitor, WatchedConnector


@dataclass
class Process:
    url: str = "http://a"
    token: str = ""


def monitor(*statuses, error="", token=""):
    found = ProcessMonitor(Process(token=token))
    found.error = error
    found.connectors = {each.connector: WatchedConnector(each) for each in statuses}
    return found


def status(name="orders", topic="/default/t", **facts):
    return ConnectorStatus(connector=name, kind="kafka-source", topic=topic, **facts)


def test_connectors_of_other_topics_are_not_shown():
    found = monitor(status(), status("hidden", "/default/secret"))
    shown = render_connectors([found], {"/default/t"}, 0)
    assert "orders" in shown
    assert "hidden" not in shown


def test_errors_are_shown_as_text_and_times_as_ages():
    failed = status(state=State.FAILED, error="<b>no", lag=1200, last_batch_time=0)
    shown = render_connectors([monitor(failed)], {"/default/t"}, 60_000_000)
    assert "&lt;b&gt;no" in shown
    assert "badge-bad" in shown
    assert "1m ago" in shown
    assert "1,200" in shown


def test_silent_process_is_shown_with_what_is_known():
    silent = monitor(status(state=State.RUNNING), error="connection refused")
    shown = render_connectors([silent], {"/default/t"}, 0)
    assert shown.count("unreachable") == 2
    assert "connection refused" in shown
    assert "none yet" in shown


def test_position_is_shown_on_request():
    each = status(position={"offset": 5}, dropped=3)
    process = monitor(each, token="sesame")
    shown = render_connector(process, WatchedConnector(each), has_position=True)
    assert "Continues at" in shown
    assert "Dropped by the transform" in shown
    assert "can only look" not in shown
    hidden = render_connector(monitor(each), WatchedConnector(each), has_position=False)
    assert "Continues at" not in hidden
    assert "can only look" in hidden


def test_long_texts_are_shortened():
    assert shortened("short") == "short"
    assert len(shortened("x" * 9999)) == TEXT_CHARACTERS_MAX + 2
