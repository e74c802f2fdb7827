"""`danube admin` with a broker as a separate process."""

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
    return said(broker, "admin", "namespaces", "create", "shop") and "shop"


@pytest.fixture
def topic(broker, shop, request):
    """A topic that no other test uses."""
    name = f"/{shop}/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    said(broker, "admin", "topics", "create", name)
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


# danube admin brokers, namespaces


def test_broker_is_listed_and_described(broker, topic):
    [listed] = told(broker, "admin", "brokers", "list")
    assert listed["url"] == broker.url
    assert listed["version"].startswith("pydanube ")
    described = told(broker, "admin", "brokers", "describe")
    assert described["broker_id"] == listed["broker_id"]
    assert described["namespace_count"] >= 3
    assert described["topic_count"] >= 1
    assert listed["broker_id"] in said(broker, "admin", "brokers", "list")
    assert listed["broker_id"] in said(broker, "admin", "brokers", "describe")


def test_a_broker_alone_is_no_cluster(broker):
    assert told(broker, "cluster", "status")["brokers"] == []
    assert "not part of a cluster" in said(broker, "cluster", "status")
    done = danube("brokers", "drain", "x", url=broker.url)
    assert done.returncode == 2
    assert "cluster.enabled" in done.stderr


def test_namespace_is_created_limited_and_deleted(broker):
    create = ("admin", "namespaces", "create", "lab", "--set", "max_message_size=9")
    assert said(broker, *create) == "Namespace lab exists.\n"
    assert "already exists" in refused(broker, 5, *create)
    assert said(broker, *create, "--if-not-exists") == "Namespace lab exists.\n"
    listed = told(broker, "admin", "namespaces", "list")
    assert [each["topic_count"] for each in listed if each["namespace"] == "lab"] == [0]
    assert "lab" in said(broker, "admin", "namespaces", "list")
    change = ("admin", "namespaces", "set-policies", "lab")
    changed = told(broker, *change, "--set", "max_publish_rate=5")
    assert changed == told(broker, "admin", "namespaces", "policies", "lab")
    assert (changed["max_publish_rate"], changed["max_message_size"]) == (5, 9)
    assert "5" in said(broker, *change, "--set", "max_publish_rate=5")
    assert "--set" in refused(broker, 2, *change)
    assert "max_rate" in refused(broker, 2, *change, "--set", "max_rate=5")
    delete = ("admin", "namespaces", "delete", "lab", "--yes")
    assert said(broker, *delete) == "Namespace lab is deleted.\n"
    assert "lab" in refused(broker, 3, *delete)


def test_namespace_with_topics_is_not_deleted(broker, topic):
    error = refused(broker, 4, "admin", "namespaces", "delete", "shop", "--yes")
    assert "delete them first" in error


# danube admin topics


def test_the_same_topics_are_found_with_and_without_admin(broker, topic):
    described = told(broker, "admin", "topics", "describe", topic)
    assert described == told(broker, "topics", "describe", topic)
    listed = told(broker, "admin", "topics", "list", "--namespace", "shop")
    assert topic in [each["topic"] for each in listed]
    said(broker, "admin", "topics", "delete", topic, "--yes")
    assert "find the topic" in refused(broker, 3, "topics", "describe", topic)


def test_partitions_are_created_added_and_deleted(broker, shop):
    name = "/shop/clicks"
    said(broker, "admin", "topics", "create", name, "--partitions", "2")
    names = [f"{name}-part-{number}" for number in range(3)]
    partitions = ("admin", "topics", "partitions", name)
    assert said(broker, *partitions).splitlines() == names[:2]
    grow = ("admin", "topics", "add-partitions", name, "--total", "3")
    assert told(broker, *grow) == {"topic": name, "partitions": names}
    refused(broker, 2, *grow)
    said(broker, "admin", "topics", "delete", name, "--yes")
    assert "find the topic" in refused(broker, 3, *partitions)


def test_a_topic_has_limits_of_its_own_or_those_of_its_namespace(broker, topic):
    limits = ("admin", "topics", "limits", topic)
    assert told(broker, *limits)["own"] is None
    assert "its namespace" in said(broker, *limits)
    changed = told(broker, *limits, "--set", "max_message_size=4")
    assert changed["own"] == changed["limits"]
    assert changed["own"]["max_message_size"] == 4
    assert "the topic itself" in said(broker, *limits)
    error = refused(broker, 2, "produce", topic, "-m", "five!")
    assert "exceeds maximum allowed 4" in error
    assert told(broker, *limits, "--clear")["own"] is None
    published(broker, topic, "five!")
    refused(broker, 2, *limits, "--clear", "--set", "max_message_size=4")
    refused(broker, 3, "admin", "topics", "limits", "/shop/nothing")


# danube admin subscriptions


def test_failure_policy_can_be_set_before_the_subscription_exists(broker, topic):
    policy = ("admin", "subscriptions", "policy", topic, "-s", "billing")
    decide = ("admin", "subscriptions", "set-policy", topic, "-s", "billing")
    assert told(broker, *policy) == {
        "failure_policy": None,
        "limits": None,
        "is_paused": False,
    }
    assert "block the subscription" in said(broker, *policy)
    planned = said(broker, *decide, "--redeliveries", "3", "--dry-run")
    assert planned.startswith(f"billing of {topic} would change:\n")
    assert planned.splitlines()[-1].split() == ["Redeliveries", "5", "3"]
    assert told(broker, *policy)["failure_policy"] is None
    decided = told(
        broker,
        *(*decide, "--redeliveries", "3", "--ack-timeout", "2m", "--delay", "500ms"),
        *("--delay-max", "1m", "--backoff", "fixed", "--expired", "dead-letter"),
        *("--dead-letter-topic", "/shop/dead", "--unacked-max", "7"),
    )
    assert decided == told(broker, *policy)
    assert decided["failure_policy"] == {
        "redeliveries_max": 3,
        "ack_timeout_s": 120.0,
        "redelivery_delay_s": 0.5,
        "redelivery_delay_s_max": 60.0,
        "backoff": "fixed",
        "poison": "dead_letter",
        "dead_letter_topic": "/shop/dead",
        "dead_letter_expired": True,
    }
    assert decided["limits"]["unacked_messages_max"] == 7
    assert "go to /shop/dead" in said(broker, *policy)
    changed = told(
        broker,
        *decide,
        "--ack-timeout",
        "never",
        "--unacked-max",
        "0",
        "--poison",
        "drop",
    )
    assert changed["failure_policy"]["ack_timeout_s"] is None
    assert changed["failure_policy"]["redeliveries_max"] == 3
    assert changed["limits"]["unacked_messages_max"] is None
    reset = told(broker, *decide, "--reset", "--unacked-each", "2")
    assert reset["failure_policy"] is None
    assert reset["limits"]["unacked_messages_max_per_consumer"] == 2
    assert "nothing to set" in refused(broker, 2, *decide)
    assert "poison" in refused(broker, 2, *decide, "--poison", "arsenic")


def test_subscription_pauses_and_resumes(broker, topic):
    which = (topic, "-s", "billing")
    said(broker, "admin", "subscriptions", "create", *which, "--from", "earliest")
    published(broker, topic, "one")
    pause = said(broker, "admin", "subscriptions", "pause", *which)
    assert pause == f"billing of {topic} is paused.\n"
    described = told(broker, "admin", "subscriptions", "describe", *which)
    assert described["is_paused"]
    resumed = told(broker, "admin", "subscriptions", "resume", *which)
    assert resumed["is_paused"] is False
    consumed = danube("consume", *which, "-n", "1", url=broker.url)
    assert consumed.stdout == "one\n"


def test_subscription_seeks_and_skips(broker, topic):
    which = (topic, "-s", "billing")
    published(broker, topic, "one", "two", "three")
    said(broker, "admin", "subscriptions", "create", *which, "--from", "earliest")
    seek = ("admin", "subscriptions", "seek", *which, "--to")
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
    described = told(broker, "admin", "subscriptions", "describe", *which)
    assert described["cursor"] == 0
    skip = ("admin", "subscriptions", "skip", *which, "--count")
    assert (
        said(broker, *skip, "2")
        == f"billing of {topic} has acknowledged everything before offset 2.\n"
    )
    assert told(broker, *skip, "1")["cursor"] == 3
    assert "not a position" in refused(broker, 2, *seek, "newest")
    assert "beyond" in refused(broker, 2, *seek, "99")
    error = refused(broker, 3, "admin", "subscriptions", "pause", "/shop/no", "-s", "x")
    assert "danube topics list" in error


def test_settings_apply_to_all_partitions(broker, shop):
    name = "/shop/hits"
    said(broker, "admin", "topics", "create", name, "--partitions", "2")
    which = (name, "-s", "billing")
    said(broker, "admin", "subscriptions", "create", *which)
    said(broker, "admin", "subscriptions", "pause", *which)
    for number in range(2):
        part = (f"{name}-part-{number}", "-s", "billing")
        assert told(broker, "subscriptions", "describe", *part)["is_paused"]
    seek = ("admin", "subscriptions", "seek", *which, "--to")
    assert len(told(broker, *seek, "earliest")) == 2
    assert "partitions" in refused(broker, 2, *seek, "0")
