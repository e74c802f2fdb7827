"""Alerts, their runbooks and the dashboards agree with the metrics of a broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, suppress

import click
import pytest
import yaml
from typer.main import get_command

from pydanube.model.connector_metrics import CONNECTOR_METRICS
from pydanube.model.metrics import METRICS, MetricKind
from pydanube.model.pipeline_metrics import PIPELINE_METRICS
from pydanube_broker.storage.segments.seal_planning import (
    SMALL_SEGMENT_BYTES,
    SMALL_SEGMENTS_MIN,
)
from pydanube_cli.main import app
from pydanube_kafka.metrics import KAFKA_METRICS
from pydanube_mqtt.metrics import MQTT_METRICS
from support.drivers.commands import danube
from support.drivers.examples import run_commands
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess
from support.servers.programs import required_program

DEPLOY = ROOT / "deploy"
RUNBOOKS = "docs/guide/runbooks.md"
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
DASHBOARDS = {
    path.name: json.loads(path.read_text())
    for path in (DEPLOY / "grafana").glob("*.json")
}
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"]
    for dashboard in DASHBOARDS.values()
    for panel in dashboard["panels"]
    for target in panel["targets"]
]
LABELS = {
    f"{metric.name}{suffix}": {*metric.labels, "instance"}
    for metric in (
        *METRICS,
        *KAFKA_METRICS,
        *MQTT_METRICS,
        *PIPELINE_METRICS,
        *CONNECTOR_METRICS,
    )
    for suffix in (
        ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
    )
}
RISING = ("_total", "_bucket", "_sum", "_count")
COUNTER = re.compile(r"(?:rate|increase)\((\w+)")


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\bdanube_\w+", query))


@pytest.mark.parametrize("query", QUERIES)
def test_queries_use_metrics_and_labels_that_exist(query: str) -> None:
    used = metrics_in(query)
    assert used <= LABELS.keys()
    for name in used:
        assert (name in COUNTER.findall(query)) == name.endswith(RISING)
        for labels in re.findall(rf"{name}{{(.*?)}}", query):
            assert set(re.findall(r"(\w+)=~", labels)) <= LABELS[name]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_have_a_summary_with_labels_that_exist(rule) -> None:
    summary = rule["annotations"]["summary"]
    known = set().union(*(LABELS.get(name, set()) for name in metrics_in(rule["expr"])))
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= known | {"instance"}
    assert summary.endswith((".", ")."))


def test_every_alert_has_a_runbook_and_the_reverse() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]
    for rule in RULES:
        anchor = f"{RUNBOOKS}#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == anchor


def test_brokers_and_alerts_find_small_segments_alike() -> None:
    (rule,) = [each for each in RULES if each["alert"] == "ManySmallSegments"]
    numbers = list(map(int, re.findall(r"\b\d+\b", rule["expr"])))
    assert numbers == [SMALL_SEGMENTS_MIN, SMALL_SEGMENT_BYTES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_command_of_an_alert_exists(rule) -> None:
    text = re.sub(r"{{ \$labels\.\w+ }}", "NAME", rule["annotations"]["command"])
    program, *words = text.split()
    assert program == "danube"
    found = get_command(app)
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0))
        assert found is not None, text
    # It parses, with all of its options.
    found.make_context(text, words, resilient_parsing=False)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_about_subscriptions_name_topic_and_subscription(rule) -> None:
    labels = set().union(*(LABELS.get(n, set()) for n in metrics_in(rule["expr"])))
    for text in (rule["annotations"]["summary"], rule["annotations"]["command"]):
        named = set(re.findall(r"\$labels\.(\w+)", text))
        if "subscription" in labels:
            assert {"topic", "subscription"} <= named
    assert "subscription" in labels or "ubscription" not in rule["alert"]


def test_the_dashboards_are_fresh() -> None:
    check = [sys.executable, "tools/dashboards.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert DASHBOARDS


@pytest.mark.e2e
@pytest.mark.slow
def test_the_commands_of_the_runbooks_run(tmp_path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        run_commands(RUNBOOKS, broker, tmp_path)


def series(name, values, **labels):
    """Return a series of the test of a rule, with a value each minute."""
    labels = {"instance": "b", **labels}
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{text}}}", "values": values}


SUBSCRIPTION = {"topic": "/default/t", "subscription": "s"}
QUERY = {"pipeline": "p", "query": "q"}
CONNECTOR = {"connector": "c", "kind": "http", "topic": "/default/t"}
RISE, GROW = "0x5 1x120", "0+200000x120"
# The series with which each alert fires, the labels that differ, and its $value.
FIRING = {
    "BrokerDown": ([series("up", "1x5 0x120", job="danube")], {"job": "danube"}, ""),
    "BrokerNotReady": ([series("danube_ready", "1x5 0x120")], {}, ""),
    "ProcessNotReady": (
        [
            series("danube_processes", "4x125"),
            series("danube_processes_ready", "4x5 3x120"),
        ],
        {},
        "3",
    ),
    "DiskFull": ([series("danube_disk_full", RISE)], {}, ""),
    "DiskSlow": (
        [
            series("danube_journal_commit_seconds_sum", "0+30x120"),
            series("danube_journal_commit_seconds_count", "0+60x120"),
        ],
        {},
        "500ms",
    ),
    "JournalStoreFails": (
        [series("danube_journal_failures_total", "0x5 0+1x120")],
        {},
        "",
    ),
    "CorruptSegments": ([series("danube_corrupt_segments", "0x5 3x120")], {}, "3"),
    "MessagesSkipped": (
        [
            series(
                "danube_subscription_messages_skipped_total", "0+1x120", **SUBSCRIPTION
            )
        ],
        SUBSCRIPTION,
        "",
    ),
    "SealingFails": ([series("danube_sealing_failing_topics", "0x5 2x120")], {}, "2"),
    "ManySmallSegments": (
        [
            series("danube_segments", "0x5 60000x120"),
            series("danube_segment_bytes", "0x5 60000000x120"),
        ],
        {},
        "60k",
    ),
    "UploadsLate": (
        [series("danube_upload_backlog_age_seconds", "0x5 7200x120")],
        {},
        "2h 0m 0s",
    ),
    "RemoteReadsFail": (
        [series("danube_remote_read_failures_total", "0x5 0+1x120")],
        {},
        "",
    ),
    **{
        alert: (
            [series("danube_subscription_problem", RISE, kind=kind, **SUBSCRIPTION)],
            {**SUBSCRIPTION, "kind": kind},
            "",
        )
        for alert, kind in (
            ("SubscriptionStopped", "corrupt_segment"),
            ("SubscriptionBlocked", "blocked"),
            ("DeadLettersFail", "dead_letters"),
        )
    },
    "SubscriptionFallsBehind": (
        [series("danube_subscription_backlog_messages", GROW, **SUBSCRIPTION)],
        SUBSCRIPTION,
        "20M",
    ),
    "MessagesDeadLettered": (
        [
            series(
                "danube_subscription_messages_dead_lettered_total",
                "0+1x120",
                **SUBSCRIPTION,
            )
        ],
        SUBSCRIPTION,
        "15",
    ),
    "SchemaMismatches": (
        [
            series(
                "danube_schema_validation_failures_total",
                "0+1x120",
                topic="/default/t",
                reason="payload",
            )
        ],
        {"topic": "/default/t", "reason": "payload"},
        "",
    ),
    "MqttPayloadsInvalid": (
        [series("danube_mqtt_messages_invalid_total", "0+1x120", action="drop")],
        {"action": "drop"},
        "",
    ),
    "StagedCommitsStuck": ([series("danube_staged_commits_undone", RISE)], {}, "1"),
    "KafkaTransactionsTimeOut": (
        [series("danube_kafka_transactions_timed_out_total", "0+1x120")],
        {},
        "",
    ),
    "KafkaTransactionsOpen": (
        [series("danube_kafka_transactions_oldest_seconds", "0x5 660x120")],
        {},
        "11m 0s",
    ),
    "TopicFails": ([series("danube_topic_failures_total", "0+1x120")], {}, ""),
    "RecordsDamaged": (
        [series("danube_metadata_damaged_records", "0x5 4x120")],
        {},
        "4",
    ),
    "ConnectionsRefused": (
        [series("danube_connections_refused_total", "0+1x120")],
        {},
        "",
    ),
    "BrokerLost": ([series("danube_cluster_lost_sessions_total", "0+1x120")], {}, ""),
    "SessionNearlyLost": (
        [series("danube_cluster_session_near_losses_total", "0+1x120")],
        {},
        "",
    ),
    "TakeoverFails": (
        [series("danube_cluster_takeover_failures_total", "0x5 0+1x120")],
        {},
        "",
    ),
    "PipelineDown": (
        [series("danube_pipeline_up", "1x5 0x120", pipeline="p")],
        {"pipeline": "p"},
        "",
    ),
    "PipelineRestarts": (
        [series("danube_pipeline_restarts_total", "0+1x120", pipeline="p")],
        {"pipeline": "p"},
        "30",
    ),
    "PipelineRunFailed": (
        [series("danube_pipeline_last_run_failed", RISE, pipeline="p")],
        {"pipeline": "p"},
        "",
    ),
    "PipelineQueryFails": (
        [series("danube_pipeline_query_failures_total", "0+1x120", **QUERY)],
        QUERY,
        "",
    ),
    "PipelineTablesNotMirrored": (
        [series("danube_pipeline_tables_not_mirrored", "0x5 2x120", pipeline="p")],
        {"pipeline": "p"},
        "",
    ),
    "PipelineStuck": (
        [
            series("danube_pipeline_last_batch_timestamp_seconds", "0x120", **QUERY),
            series("danube_pipeline_lag_messages", "5x120", topic="t", **QUERY),
            series("danube_pipeline_query_running", "1x120", **QUERY),
        ],
        QUERY,
        "1h 40m 0s",
    ),
    "PipelineFallsBehind": (
        [series("danube_pipeline_lag_messages", GROW, topic="t", **QUERY)],
        QUERY,
        "20M",
    ),
    "ConnectorsDown": (
        [series("up", "1x5 0x120", job="danube-connectors")],
        {"job": "danube-connectors"},
        "",
    ),
    "ConnectorFailed": (
        [series("danube_connector_failed", RISE, **CONNECTOR)],
        CONNECTOR,
        "",
    ),
    "ConnectorRetries": (
        [
            series("danube_connector_retrying_seconds", "0x5 600x120", **CONNECTOR),
            series("danube_connector_degraded", RISE, **CONNECTOR),
        ],
        CONNECTOR,
        "10m 0s",
    ),
    "ConnectorStuck": (
        [
            series(
                "danube_connector_last_batch_timestamp_seconds", "0x120", **CONNECTOR
            ),
            series("danube_connector_lag_messages", "5x120", **CONNECTOR),
            series("danube_connector_running", "1x120", **CONNECTOR),
        ],
        CONNECTOR,
        "1h 40m 0s",
    ),
    "ConnectorFallsBehind": (
        [series("danube_connector_lag_messages", GROW, **CONNECTOR)],
        CONNECTOR,
        "20M",
    ),
    "ConnectorDeadLetters": (
        [series("danube_connector_dead_letters_total", "0+1x120", **CONNECTOR)],
        CONNECTOR,
        "15",
    ),
    **{
        alert: (
            [series("danube_stored_connectors", "0x5 2x120", health=health)],
            {"health": health, "instance": None},
            "2",
        )
        for alert, health in (
            ("StoredConnectorsUnassigned", "unassigned"),
            ("StoredConnectorsFail", "failed"),
            ("StoredConnectorsOutdated", "outdated"),
        )
    },
}


def rendered(template, labels, value) -> str:
    """Return an annotation of an alert, as Prometheus renders it."""
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda each: labels[each[1]], template)
    return re.sub(r"{{ \$value( \| \w+)? }}", value, text)


def test_every_alert_fires_in_a_test() -> None:
    assert sorted(FIRING) == sorted(rule["alert"] for rule in RULES)


@pytest.mark.slow
def test_alerts_fire_and_name_what_they_are_about(tmp_path) -> None:
    program = required_program("promtool", "prometheus")
    paths = []
    for rule in RULES:
        # With all rules in one file, each test would evaluate every rule.
        rules = tmp_path / f"{rule['alert']}-rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]}))
        input_series, labels, value = FIRING[rule["alert"]]
        labels = {"instance": "b", **labels}
        labels = {name: each for name, each in labels.items() if each is not None}
        annotations = {
            name: rendered(text, labels, value)
            for name, text in rule["annotations"].items()
        }
        expected = {
            "exp_labels": {**labels, **rule["labels"]},
            "exp_annotations": annotations,
        }
        name = {"alertname": rule["alert"]}
        test = {
            "name": rule["alert"],
            "interval": "1m",
            "input_series": input_series,
            "alert_rule_test": [
                {"eval_time": "0m", "exp_alerts": [], **name},
                {"eval_time": "100m", "exp_alerts": [expected], **name},
            ],
        }
        checked = {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            "tests": [test],
        }
        paths.append(tmp_path / f"{rule['alert']}.yaml")
        paths[-1].write_text(yaml.safe_dump(checked))
    done = subprocess.run(
        [program, "test", "rules", *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
def test_prometheus_accepts_the_alerts_and_the_queries(tmp_path) -> None:
    program = required_program("prometheus", "prometheus")
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        done = danube("topics", "create", "/default/orders", url=broker.url)
        assert done.returncode == 0, done.stderr
        url = start_prometheus(program, tmp_path, broker.http_port, stack)
        while not answer(url, "query", query="danube_ready == 1")["result"]:
            time.sleep(0.2)
        for query in QUERIES:
            plain = query.replace("$__rate_interval", "1m")
            answer(url, "query", query=re.sub(r"\$\w+", ".*", plain))
        while "unknown" in (found := healths(answer(url, "rules"))):
            time.sleep(0.2)
        assert found == {"ok"}


def start_prometheus(program, directory, scraped_port, stack) -> str:
    scraping = {
        "job_name": "danube",
        "static_configs": [{"targets": [f"127.0.0.1:{scraped_port}"]}],
    }
    settings = directory / "prometheus.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(DEPLOY / "prometheus/rules.yaml")],
                "scrape_configs": [scraping],
            }
        )
    )
    port = free_port()
    options = {
        "config.file": settings,
        "storage.tsdb.path": directory / "prometheus",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    process = subprocess.Popen([program, *(f"--{k}={v}" for k, v in options.items())])
    stack.callback(process.wait)
    stack.callback(process.kill)
    url = f"http://127.0.0.1:{port}"
    while True:
        assert process.poll() is None
        with suppress(OSError), urllib.request.urlopen(f"{url}/-/ready"):
            return url
        time.sleep(0.2)


def answer(url, what, **parameters):
    """Return the data that Prometheus answers; an error raises."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/v1/{what}?{query}") as response:
        return json.load(response)["data"]


def healths(rules) -> set[str]:
    return {rule["health"] for group in rules["groups"] for rule in group["rules"]}
