"""Commands of administrators with a broker as a separate process."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from pydanube.cli import main
from support.commands import danube
from support.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def shop(broker):
    """A namespace for these tests."""
    return said(broker, "namespaces", "create", "shop") and "shop"


@pytest.fixture
def topic(broker, shop, request):
    """A topic that no other test uses."""
    name = f"/{shop}/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    said(broker, "topics", "create", name)
    return name


# Run the commands in this process, which saves a second for each.


def run(broker, *arguments):
    return CliRunner().invoke(main.app, list(arguments), env={"DANUBE_URL": broker.url})


def said(broker, *arguments):
    result = run(broker, *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), arguments
    return result.stdout


def told(broker, *arguments):
    return json.loads(said(broker, *arguments, "--format", "json"))


def refused(broker, code, *arguments):
    """Return the error of a command that exits with *code*."""
    result = run(broker, *arguments)
    assert (result.exit_code, result.stdout) == (code, ""), arguments
    return result.stderr


def published(broker, topic, *payloads):
    words = [word for payload in payloads for word in ("-m", payload)]
    said(broker, "produce", topic, *words)


# danube brokers, namespaces


def test_broker_is_listed_and_described(broker, topic):
    [listed] = told(broker, "brokers", "list")
    assert listed["url"] == broker.url
    assert listed["version"].startswith("pydanube ")
    described = told(broker, "brokers", "describe")
    assert described["broker_id"] == listed["broker_id"]
    assert described["namespace_count"] >= 3
    assert described["topic_count"] >= 1
    assert listed["broker_id"] in said(broker, "brokers", "list")
    assert listed["broker_id"] in said(broker, "brokers", "describe")


def test_a_broker_alone_is_no_cluster(broker):
    assert told(broker, "cluster", "status")["brokers"] == []
    assert "not part of a cluster" in said(broker, "cluster", "status")
    done = danube("brokers", "drain", "x", url=broker.url)
    assert done.returncode == 2
    assert "cluster.enabled" in done.stderr


def test_namespace_is_created_limited_and_deleted(broker):
    create = ("namespaces", "create", "lab")
    assert said(broker, *create) == "Namespace lab exists.\n"
    assert "already exists" in refused(broker, 5, *create)
    assert said(broker, *create, "--if-not-exists") == "Namespace lab exists.\n"
    listed = told(broker, "namespaces", "list")
    assert [each["topic_count"] for each in listed if each["namespace"] == "lab"] == [0]
    assert "lab" in said(broker, "namespaces", "list")
    configure = ("namespaces", "configure", "lab")
    limits = (
        "--set",
        "policy.max_publish_rate=5",
        "--set",
        "policy.max_message_size=9",
    )
    planned = said(broker, *configure, *limits, "--dry-run")
    assert planned.startswith("lab would change:\n")
    assert told(broker, *configure)["policy"]["max_publish_rate"] == 0
    assert len(told(broker, *configure, *limits)["changes"]) == 2
    found = told(broker, *configure)
    assert found["policy"]["max_publish_rate"] == 5
    assert found["policy"]["max_message_size"] == 9
    assert "policy.max_publish_rate" in said(broker, *configure)
    assert said(broker, *configure, *limits) == "lab has these settings already.\n"
    wrong = refused(broker, 2, *configure, "--set", "policy.max_rate=5")
    assert "max_rate" in wrong
    delete = ("namespaces", "delete", "lab", "--yes")
    assert said(broker, *delete) == "Namespace lab is deleted.\n"
    assert "lab" in refused(broker, 3, *delete)


def test_namespace_with_topics_is_not_deleted(broker, topic):
    error = refused(broker, 4, "namespaces", "delete", "shop", "--yes")
    assert "delete them first" in error


# danube topics


def test_the_same_topics_are_found_with_and_without_admin(broker, topic):
    described = told(broker, "topics", "describe", topic)
    assert described == told(broker, "topics", "describe", topic)
    listed = told(broker, "topics", "list", "--namespace", "shop")
    assert topic in [each["topic"] for each in listed]
    said(broker, "topics", "delete", topic, "--yes")
    assert "find the topic" in refused(broker, 3, "topics", "describe", topic)


def test_partitions_are_created_added_and_deleted(broker, shop):
    name = "/shop/clicks"
    said(broker, "topics", "create", name, "--partitions", "2")
    names = [f"{name}-part-{number}" for number in range(3)]
    partitions = ("topics", "partitions", name)
    assert said(broker, *partitions).splitlines() == names[:2]
    grow = ("topics", "add-partitions", name, "--total", "3")
    assert told(broker, *grow) == {"topic": name, "partitions": names}
    refused(broker, 2, *grow)
    said(broker, "topics", "delete", name, "--yes")
    assert "find the topic" in refused(broker, 3, *partitions)


def test_a_topic_has_limits_of_its_own_or_those_of_its_namespace(broker, topic):
    configure = ("topics", "configure", topic)
    assert told(broker, *configure)["limits"] == "inherit"
    said(broker, *configure, "--set", "limits.max_message_size=4")
    assert told(broker, *configure)["limits"]["max_message_size"] == 4
    error = refused(broker, 2, "produce", topic, "-m", "five!")
    assert "exceeds maximum allowed 4" in error
    said(broker, *configure, "--set", "limits=inherit")
    published(broker, topic, "five!")
    refused(broker, 3, "topics", "configure", "/shop/nothing")


# danube subscriptions


def test_failure_policy_can_be_set_before_the_subscription_exists(broker, topic):
    configure = ("subscriptions", "configure", topic, "-s", "billing")
    usual = told(broker, *configure)
    assert (usual["limits"]["unacked"], usual["paused"]) == ("none", False)
    change = (*configure, "--set", "failure_policy.redeliveries=3")
    planned = said(broker, *change, "--dry-run")
    assert planned.startswith(f"billing of {topic} would change:\n")
    found = planned.splitlines()[-1].split()
    assert found == ["failure_policy.redeliveries", "5", "3"]
    assert told(broker, *configure) == usual
    values = {
        "ack_timeout": "2m",
        "delay": "0.5s",
        "delay_max": "1m",
        "backoff": "fixed",
        "dead_letter_topic": "/shop/dead",
        "dead_letter_expired": "true",
    }
    for name, value in values.items():
        change += ("--set", f"failure_policy.{name}={value}")
    said(broker, *change, "--set", "limits.unacked=7")
    found = told(broker, *configure)
    policy = values | {"dead_letter_expired": True}
    policy |= {"redeliveries": 3, "poison": "dead_letter"}
    assert found["failure_policy"] == policy
    assert found["limits"]["unacked"] == 7
    change = (*configure, "--set", "failure_policy.ack_timeout=never")
    change += ("--set", "failure_policy.poison=drop", "--set", "limits.unacked=none")
    said(broker, *change)
    found = told(broker, *configure)
    policy |= {"ack_timeout": "never", "poison": "drop"}
    assert (found["failure_policy"], found["limits"]["unacked"]) == (policy, "none")
    said(broker, *configure, "--set", "failure_policy=default")
    assert told(broker, *configure) == usual
    wrong = refused(broker, 2, *configure, "--set", "failure_policy.poison=arsenic")
    assert "poison" in wrong


def test_subscription_pauses_and_resumes(broker, topic):
    which = (topic, "-s", "billing")
    said(broker, "subscriptions", "create", *which, "--from", "earliest")
    published(broker, topic, "one")
    pause = said(broker, "subscriptions", "pause", *which)
    assert pause == f"billing of {topic} is paused.\n"
    described = told(broker, "subscriptions", "describe", *which)
    assert described["is_paused"]
    resumed = told(broker, "subscriptions", "resume", *which)
    assert resumed["is_paused"] is False
    consumed = danube("consume", *which, "-n", "1", url=broker.url)
    assert consumed.stdout == "one\n"


def test_subscription_seeks_and_skips(broker, topic):
    which = (topic, "-s", "billing")
    published(broker, topic, "one", "two", "three")
    said(broker, "subscriptions", "create", *which, "--from", "earliest")
    seek = ("subscriptions", "seek", *which, "--to")
    assert said(broker, *seek, "2") == f"billing of {topic} continues at offset 2.\n"
    for place, cursor in (("earliest", 0), ("latest", 3), ("1h", 0)):
        assert told(broker, *seek, place) == [
            {"topic": topic, "subscription": "billing", "cursor": cursor}
        ]
    reset = ("subscriptions", "reset", *which, "--to")
    assert said(broker, *reset, "0") == f"billing of {topic} continues at offset 0.\n"
    for place, position in (("2", 2), ("latest", 3), ("1h", 0)):
        [plan] = told(broker, *seek, place, "--dry-run")
        assert (plan["cursor"], plan["position"]) == (0, position)
        assert (plan["delivered_again"], plan["skipped"]) == (0, position)
    assert "beyond" in refused(broker, 2, *seek, "99", "--dry-run")
    described = told(broker, "subscriptions", "describe", *which)
    assert described["cursor"] == 0
    skip = ("subscriptions", "skip", *which, "--count")
    assert (
        said(broker, *skip, "2")
        == f"billing of {topic} has acknowledged everything before offset 2.\n"
    )
    assert told(broker, *skip, "1")["cursor"] == 3
    assert "not a position" in refused(broker, 2, *seek, "newest")
    assert "beyond" in refused(broker, 2, *seek, "99")
    error = refused(broker, 3, "subscriptions", "pause", "/shop/no", "-s", "x")
    assert "danube topics list" in error


def test_settings_apply_to_all_partitions(broker, shop):
    name = "/shop/hits"
    said(broker, "topics", "create", name, "--partitions", "2")
    which = (name, "-s", "billing")
    said(broker, "subscriptions", "create", *which)
    said(broker, "subscriptions", "pause", *which)
    for number in range(2):
        part = (f"{name}-part-{number}", "-s", "billing")
        assert told(broker, "subscriptions", "describe", *part)["is_paused"]
    seek = ("subscriptions", "seek", *which, "--to")
    assert len(told(broker, *seek, "earliest")) == 2
    assert "partitions" in refused(broker, 2, *seek, "0")
