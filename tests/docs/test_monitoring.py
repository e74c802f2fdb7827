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

import pytest
import yaml

from pydanube.model.connector_metrics import CONNECTOR_METRICS
from pydanube.model.metrics import METRICS, MetricKind
from pydanube.model.pipeline_metrics import PIPELINE_METRICS
from pydanube.servers.mqtt.metrics import MQTT_METRICS
from support.commands import danube
from support.examples import run_commands
from support.ports import free_port
from support.processes import BrokerProcess
from support.programs import required_program
from support.project import ROOT

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
    for metric in METRICS + MQTT_METRICS + PIPELINE_METRICS + CONNECTOR_METRICS
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
        assert rule["annotations"]["runbook"] == anchor


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
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{text}}}", "values": values}


FIRING = {
    "SessionNearlyLost": (
        [series("danube_cluster_session_near_losses_total", "0x5 1x20", instance="b")],
        (
            "The broker b is short of processor time or cut off from the metadata "
            "store, and may lose its session."
        ),
    ),
    "BrokerLost": (
        [series("danube_cluster_lost_sessions_total", "0x5 1x20", instance="b")],
        "Another broker of the cluster has failed, and b has taken over its topics.",
    ),
    "BrokerNotReady": (
        [series("danube_ready", "0x30", instance="b")],
        "The broker b runs, but serves no topics.",
    ),
}
"""The series with which alerts fire after ten minutes, and what they say."""


@pytest.mark.parametrize("alert", FIRING)
def test_alerts_fire_and_name_what_they_are_about(tmp_path, alert) -> None:
    program = required_program("promtool", "prometheus")
    input_series, summary = FIRING[alert]
    (rule,) = [each for each in RULES if each["alert"] == alert]
    expected = {
        "exp_labels": {"instance": "b", **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }
    checked = {
        "rule_files": [str(DEPLOY / "prometheus/rules.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": input_series,
                "alert_rule_test": [
                    {"eval_time": "0m", "alertname": alert, "exp_alerts": []},
                    {"eval_time": "10m", "alertname": alert, "exp_alerts": [expected]},
                ],
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(checked))
    done = subprocess.run(
        [program, "test", "rules", str(path)],
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
