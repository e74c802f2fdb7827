"""
Writes the dashboards of deploy/grafana, or says which of them are stale.

    python tools/dashboards.py            write them
    python tools/dashboards.py --check    exit with 1 if one differs
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[1] / "deploy" / "grafana"

COLUMNS = 24
"""The width of a dashboard, in units of Grafana."""
HEIGHT = 8

BROKER = 'instance=~"$broker"'
TOPIC = f'{BROKER},topic=~"$topic"'


@dataclass(frozen=True)
class Panel:
    """A panel: one query for each legend."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    help: str = ""


def rate(metric: str, labels: str = BROKER) -> str:
    """Return the query for the rate of a counter."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def gauge(metric: str, labels: str = BROKER) -> str:
    """Return the query for a gauge."""
    return f"{metric}{{{labels}}}"


def mean(seconds: str, count: str) -> str:
    """Return the query for the mean time of what two counters count."""
    return f"{rate(seconds)} / ({rate(count)} > 0)"


def quantile(histogram: str, share: float, *labels: str) -> str:
    """Return the query for the duration that *share* of the events do not exceed."""
    buckets = total(rate(f"{histogram}_bucket"), "le", *labels)
    return f"histogram_quantile({share}, {buckets})"


def median_and_p99(histogram: str) -> dict[str, str]:
    """Return the queries for the median and the 99th percentile of each broker."""
    return {
        "{{instance}} median": quantile(histogram, 0.5, "instance"),
        "{{instance}} p99": quantile(histogram, 0.99, "instance"),
    }


def total(query: str, *labels: str) -> str:
    """Return the query for the sum of *query*, for each value of *labels*."""
    return f"sum by ({', '.join(labels)}) ({query})" if labels else f"sum({query})"


def top(query: str, label: str) -> str:
    """Return the query for the ten largest sums of *query*."""
    return f"topk(10, {total(query, label)})"


OVERVIEW = [
    Panel(
        "Brokers that are ready",
        "short",
        {"": "sum(max without (process) (danube_ready))"},
        "stat",
    ),
    Panel("Topics", "short", {"": total(gauge("danube_topics"))}, "stat"),
    Panel("Producers", "short", {"": total(gauge("danube_producers"))}, "stat"),
    Panel("Consumers", "short", {"": total(gauge("danube_consumers"))}, "stat"),
    Panel(
        "Blocked or stopped subscriptions",
        "short",
        {
            "": total(gauge("danube_blocked_subscriptions"))
            + " + "
            + total(gauge("danube_stopped_subscriptions"))
        },
        "stat",
    ),
    Panel(
        "Firing alerts",
        "short",
        {"": 'sum(ALERTS{job="danube",alertstate="firing"}) or vector(0)'},
        "stat",
    ),
    Panel(
        "Messages",
        "cps",
        {
            "published": total(rate("danube_messages_in_total")),
            "delivered": total(rate("danube_messages_out_total")),
        },
    ),
    Panel(
        "Bytes",
        "Bps",
        {
            "published": total(rate("danube_in_bytes_total")),
            "delivered": total(rate("danube_out_bytes_total")),
        },
    ),
    Panel(
        "Backlog of the ten furthest subscriptions",
        "short",
        {
            "{{topic}} {{subscription}}": "topk(10, "
            + gauge("danube_subscription_backlog_messages")
            + ")"
        },
    ),
    Panel(
        "The ten oldest unacknowledged messages",
        "s",
        {
            "{{topic}} {{subscription}}": "topk(10, "
            + gauge("danube_subscription_lag_seconds")
            + ")"
        },
    ),
    Panel(
        "Time from a batch to its receipt",
        "s",
        median_and_p99("danube_publish_seconds"),
    ),
    Panel(
        "Age of messages at their first delivery",
        "s",
        median_and_p99("danube_delivery_age_seconds"),
    ),
    Panel("Errors", "cps", {"{{code}}": total(rate("danube_errors_total"), "code")}),
    Panel(
        "Failed messages",
        "cps",
        {
            "nacked": total(rate("danube_messages_nacked_total")),
            "not acknowledged in time": total(rate("danube_ack_timeouts_total")),
            "dead-lettered": total(rate("danube_messages_dead_lettered_total")),
            "given up": total(rate("danube_messages_given_up_total")),
        },
    ),
]

TOPICS = [
    Panel(
        "Messages published",
        "cps",
        {"{{topic}}": top(rate("danube_topic_messages_in_total", TOPIC), "topic")},
    ),
    Panel(
        "Messages delivered",
        "cps",
        {"{{topic}}": top(rate("danube_topic_messages_out_total", TOPIC), "topic")},
    ),
    Panel(
        "Bytes published",
        "Bps",
        {"{{topic}}": top(rate("danube_topic_in_bytes_total", TOPIC), "topic")},
    ),
    Panel(
        "Bytes delivered",
        "Bps",
        {"{{topic}}": top(rate("danube_topic_out_bytes_total", TOPIC), "topic")},
    ),
    Panel(
        "Backlog",
        "short",
        {
            "{{topic}} {{subscription}}": "topk(10, "
            + gauge("danube_subscription_backlog_messages", TOPIC)
            + ")"
        },
    ),
    Panel(
        "Age of the oldest unacknowledged message",
        "s",
        {
            "{{topic}} {{subscription}}": "topk(10, "
            + gauge("danube_subscription_lag_seconds", TOPIC)
            + ")"
        },
    ),
    Panel(
        "Failed messages",
        "cps",
        {
            "{{topic}} nacked": top(
                rate("danube_topic_messages_nacked_total", TOPIC), "topic"
            ),
            "{{topic}} dead-lettered": top(
                rate("danube_topic_messages_dead_lettered_total", TOPIC), "topic"
            ),
        },
    ),
    Panel(
        "Messages that do not match the schema",
        "cps",
        {
            "{{topic}}: {{reason}}": total(
                rate("danube_schema_validation_failures_total", TOPIC),
                "topic",
                "reason",
            )
        },
    ),
]

BROKERS = [
    Panel(
        "Processor time",
        "percentunit",
        {"{{instance}} {{process}}": rate("process_cpu_seconds_total")},
    ),
    Panel(
        "Memory",
        "bytes",
        {"{{instance}} {{process}}": gauge("process_resident_memory_bytes")},
    ),
    Panel(
        "Connections",
        "short",
        {
            "{{instance}} {{process}} native": gauge("danube_connections"),
            "{{instance}} {{process}} {{listener}}": gauge(
                "danube_listener_connections"
            ),
        },
    ),
    Panel(
        "Requests",
        "cps",
        {"{{request}}": top(rate("danube_request_seconds_count"), "request")},
    ),
    Panel(
        "99th percentile of the time of requests",
        "s",
        {
            "{{request}}": "topk(10, "
            + quantile("danube_request_seconds", 0.99, "request")
            + ")"
        },
    ),
    Panel(
        "Connections closed by the broker",
        "cps",
        {
            "too many": total(rate("danube_connections_refused_total")),
            "silent": total(rate("danube_connections_timed_out_total")),
            "{{listener}}: violated the protocol": total(
                rate("danube_listener_connections_broken_total"), "listener"
            ),
        },
    ),
    Panel(
        "Unsealed messages in memory",
        "bytes",
        {"{{instance}} {{process}}": gauge("danube_tail_memory_bytes")},
    ),
    Panel(
        "Open files", "short", {"{{instance}} {{process}}": gauge("process_open_fds")}
    ),
    Panel(
        "Shards of the cluster",
        "short",
        {"{{instance}} {{process}}": gauge("danube_cluster_shards")},
    ),
    Panel(
        "Mean time of a takeover",
        "s",
        {
            "{{instance}} {{process}}": mean(
                "danube_cluster_takeover_seconds_total",
                "danube_cluster_takeovers_total",
            )
        },
    ),
]

STORAGE = [
    Panel(
        "Journal", "bytes", {"{{instance}} {{process}}": gauge("danube_journal_bytes")}
    ),
    Panel(
        "Commits and syncs of the journal",
        "cps",
        {
            "{{instance}} {{process}} commits": rate(
                "danube_journal_commit_seconds_count"
            ),
            "{{instance}} {{process}} syncs": rate("danube_journal_syncs_total"),
        },
    ),
    Panel("Time of a commit", "s", median_and_p99("danube_journal_commit_seconds")),
    Panel("Time of a sealing", "s", median_and_p99("danube_sealing_seconds")),
    Panel("Time of an upload", "s", median_and_p99("danube_upload_seconds")),
    Panel(
        "Segments",
        "bytes",
        {
            "{{instance}} {{process}} all": gauge("danube_segment_bytes"),
            "{{instance}} {{process}} on the local disk": gauge(
                "danube_local_segment_bytes"
            ),
        },
    ),
    Panel(
        "Waiting for upload",
        "bytes",
        {"{{instance}} {{process}}": gauge("danube_upload_backlog_bytes")},
    ),
    Panel(
        "Remote object store",
        "Bps",
        {
            "{{instance}} {{process}} uploaded": rate("danube_uploaded_bytes_total"),
            "{{instance}} {{process}} read": rate("danube_remote_read_bytes_total"),
        },
    ),
    Panel(
        "Failures",
        "cps",
        {
            "sealing": total(rate("danube_sealing_failures_total")),
            "uploads": total(rate("danube_upload_failures_total")),
            "remote reads": total(rate("danube_remote_read_failures_total")),
            "object journal": total(rate("danube_journal_failures_total")),
        },
    ),
    Panel(
        "Staged parts",
        "bytes",
        {"{{instance}} {{process}}": gauge("danube_staged_bytes")},
        help="Messages of Spark's exactly-once sink and of transactions that are not "
        "committed yet.",
    ),
    Panel(
        "Staged commits that are not complete",
        "short",
        {"{{instance}} {{process}}": gauge("danube_staged_commits_undone")},
    ),
]

RUN = 'pipeline=~"$pipeline"'

PIPELINES = [
    Panel("Pipelines that are up", "short", {"": "sum(danube_pipeline_up)"}, "stat"),
    Panel(
        "Pipelines whose last run failed",
        "short",
        {"": "sum(danube_pipeline_last_run_failed)"},
        "stat",
    ),
    Panel(
        "Rows read",
        "cps",
        {"{{pipeline}} {{query}}": rate("danube_pipeline_rows_total", RUN)},
    ),
    Panel(
        "Lag of the ten furthest queries",
        "short",
        {
            "{{pipeline}} {{query}} {{topic}}": "topk(10, "
            + gauge("danube_pipeline_lag_messages", RUN)
            + ")"
        },
    ),
    Panel(
        "Mean time of a micro-batch",
        "s",
        {
            "{{pipeline}} {{query}}": rate("danube_pipeline_batch_seconds_total", RUN)
            + " / ("
            + rate("danube_pipeline_batches_total", RUN)
            + " > 0)"
        },
    ),
    Panel(
        "Time since the last micro-batch",
        "s",
        {
            "{{pipeline}} {{query}}": "time() - "
            + gauge("danube_pipeline_last_batch_timestamp_seconds", RUN)
        },
    ),
    Panel(
        "Failures of queries and restarts",
        "short",
        {
            "{{pipeline}} {{query}}": "increase("
            + gauge("danube_pipeline_query_failures_total", RUN)
            + "[$__rate_interval])",
            "{{pipeline}} restarts": "increase("
            + gauge("danube_pipeline_restarts_total", RUN)
            + "[$__rate_interval])",
        },
    ),
    Panel(
        "Rows of state",
        "short",
        {"{{pipeline}} {{query}}": gauge("danube_pipeline_state_rows", RUN)},
        help="What aggregates, joins and other steps with a state keep.",
    ),
    Panel(
        "Memory of state",
        "bytes",
        {"{{pipeline}} {{query}}": gauge("danube_pipeline_state_memory_bytes", RUN)},
    ),
    Panel(
        "Rows that broke an expectation",
        "cps",
        {
            "{{pipeline}} {{query}} {{expectation}}": rate(
                "danube_pipeline_broken_rows_total", RUN
            )
        },
        help="The quality of the data over time, for each expectation of a step.",
    ),
    Panel(
        "Time since the last successful run",
        "s",
        {
            "{{pipeline}}": "time() - "
            + gauge("danube_pipeline_last_success_timestamp_seconds", RUN)
        },
    ),
]

CONNECTOR = 'connector=~"$connector"'

CONNECTORS = [
    Panel(
        "Stored connectors by health",
        "short",
        {"{{health}}": "max by (health) (danube_stored_connectors)"},
        help="The connectors that the brokers store. Unassigned: no worker runs them.",
    ),
    Panel(
        "Connectors that run",
        "short",
        {"": total(gauge("danube_connector_running", CONNECTOR))},
        "stat",
    ),
    Panel(
        "Connectors that have failed",
        "short",
        {"": total(gauge("danube_connector_failed", CONNECTOR))},
        "stat",
    ),
    Panel(
        "Connectors that are degraded",
        "short",
        {"": total(gauge("danube_connector_degraded", CONNECTOR))},
        "stat",
    ),
    Panel(
        "Messages",
        "cps",
        {"{{connector}}": rate("danube_connector_messages_total", CONNECTOR)},
        help="Messages that sources publish and sinks write.",
    ),
    Panel(
        "Size of their payloads",
        "Bps",
        {"{{connector}}": rate("danube_connector_bytes_total", CONNECTOR)},
    ),
    Panel(
        "Messages that wait",
        "short",
        {"{{connector}}": gauge("danube_connector_lag_messages", CONNECTOR)},
        help="In the source, or in the topic of a sink.",
    ),
    Panel(
        "Time since the last batch",
        "s",
        {
            "{{connector}}": "time() - "
            + gauge("danube_connector_last_batch_timestamp_seconds", CONNECTOR)
        },
    ),
    Panel(
        "Time of repeated failures",
        "s",
        {"{{connector}}": gauge("danube_connector_retrying_seconds", CONNECTOR)},
    ),
    Panel(
        "Retries",
        "cps",
        {"{{connector}}": rate("danube_connector_retries_total", CONNECTOR)},
    ),
    Panel(
        "Dead letters and refused records",
        "cps",
        {
            "{{connector}} dead letters": rate(
                "danube_connector_dead_letters_total", CONNECTOR
            ),
            "{{connector}} refused": rate("danube_connector_refused_total", CONNECTOR),
        },
    ),
    Panel(
        "Records that transforms drop",
        "cps",
        {"{{connector}}": rate("danube_connector_dropped_total", CONNECTOR)},
    ),
]

DASHBOARDS = {
    "overview": ("Danube: overview", OVERVIEW),
    "topics": ("Danube: topics", TOPICS),
    "brokers": ("Danube: brokers", BROKERS),
    "storage": ("Danube: storage", STORAGE),
    "pipelines": ("Danube: pipelines", PIPELINES),
    "connectors": ("Danube: connectors", CONNECTORS),
}

VARIABLES = {
    "broker": "label_values(danube_ready, instance)",
    "topic": "label_values(danube_subscription_backlog_messages, topic)",
    "pipeline": "label_values(danube_pipeline_up, pipeline)",
    "connector": "label_values(danube_connector_running, connector)",
}


def main(arguments: list[str]) -> int:
    """Write or check the dashboards; the exit code."""
    stale = []
    for name, (title, panels) in DASHBOARDS.items():
        path = DIRECTORY / f"{name}.json"
        text = json.dumps(dashboard(name, title, panels), indent=1) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
            print(f"Wrote deploy/grafana/{path.name}.")
    if "--check" not in arguments:
        return 0
    for path in stale:
        print(f"deploy/grafana/{path.name} is stale; 'make docs' writes it again.")
    return 1 if stale else 0


def dashboard(name: str, title: str, panels: list[Panel]) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON model."""
    variables = {
        each: query
        for each, query in VARIABLES.items()
        if any(
            f"${each}" in text for panel in panels for text in panel.queries.values()
        )
    }
    return {
        "uid": f"danube-{name}",
        "title": title,
        "tags": ["danube"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["danube"], "title": "Danube"}],
        "templating": {
            "list": [
                {
                    "name": "source",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Prometheus",
                },
                *(_variable(each, query) for each, query in variables.items()),
            ]
        },
        "panels": _placed(panels),
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": name.capitalize(),
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: list[Panel]) -> list[dict[str, Any]]:
    """Return the panels in rows: first all statistics, then two graphs in each."""
    statistics = sum(panel.kind == "stat" for panel in panels)
    placed: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(panels, 1):
        width, height = (COLUMNS // 2, HEIGHT)
        if panel.kind == "stat":
            width, height = COLUMNS // statistics, HEIGHT // 2
        if x + width > COLUMNS:
            x, y = 0, placed[-1]["gridPos"]["y"] + placed[-1]["gridPos"]["h"]
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": height}))
        x += width
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
