"""`danube topics configure` changes topics of a broker."""

from __future__ import annotations

import json
import re

import pytest

from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def process_url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url


@pytest.fixture
def topic(url, request):
    name = "/default/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    assert danube("topics", "create", name, url=url).returncode == 0
    return name


def described(url, topic):
    done = danube("topics", "describe", topic, "--format", "json", url=url)
    return json.loads(done.stdout)


def settings_of(url, topic):
    found = described(url, topic)
    return {name: found[name] for name in ("policy", "limits", "schema")}


def test_changes_are_shown_and_made(url, topic):
    words = ["topics", "configure", topic, "--set", "retention.age=7d"]
    words += ["--set", "on_corruption=skip", "--set", "sealing.size=1MiB"]
    words += ["--set", "limits.max_publish_rate=1000"]
    planned = danube(*words, "--dry-run", url=url)
    assert planned.stdout.startswith(f"{topic} would change:\n")
    assert described(url, topic)["policy"]["on_corruption"] == "stop"
    done = danube(*words, url=url)
    assert [line.split() for line in done.stdout.splitlines()[3:]] == [
        ["on_corruption", "stop", "skip"],
        ["retention", "inherit", "age=7d,", "size=none,", "acknowledged=no"],
        ["sealing.size", "default", "1MiB"],
        ["limits", "inherit", "max_publish_rate=1000"],
    ]
    found = described(url, topic)
    assert found["policy"]["on_corruption"] == "skip"
    assert found["policy"]["retention"]["age_s"] == 604800
    assert found["policy"]["seal_bytes"] == 1024 * 1024
    assert found["own_limits"]["max_publish_rate"] == 1000
    assert danube(*words, url=url).stdout == f"{topic} has these settings already.\n"


def test_schema_is_bound_and_removed(url, topic):
    schema = ["schemas", "register", "numbers", "--type", "number"]
    assert danube(*schema, url=url).returncode == 0
    configure = ["topics", "configure", topic, "--format", "json", "--set"]
    bound = danube(*configure, "schema.subject=numbers", url=url)
    assert json.loads(bound.stdout)["changes"][0]["new"]["subject"] == "numbers"
    assert described(url, topic)["schema"]["subject"] == "numbers"
    assert danube(*configure, "schema=none", url=url).returncode == 0
    assert described(url, topic)["schema"] is None


def test_one_wrong_change_refuses_all(url, topic):
    words = ["topics", "configure", topic, "--set", "schema.subject=nothing"]
    before = settings_of(url, topic)
    done = danube(*words, "--set", "limits.max_publish_rate=9", url=url)
    assert done.returncode == 3
    assert "'nothing' not found" in done.stderr
    assert settings_of(url, topic) == before


def test_partitions_change_together(url):
    create = ["topics", "create", "/default/parts", "--partitions", "2"]
    assert danube(*create, url=url).returncode == 0
    done = danube(
        *("topics", "configure", "/default/parts", "--set", "on_corruption=skip"),
        url=url,
    )
    assert done.returncode == 0
    found = described(url, "/default/parts")["partitions"]
    assert [each["policy"]["on_corruption"] for each in found] == ["skip", "skip"]
