"""Commands of administrators with a broker in another process, and in other worlds."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from pydanube.sync import connect
from pydanube_cli import main
from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def process_url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process.url
        assert process.stop() == 0


@pytest.fixture
def shop(url):
    """A namespace for these tests."""
    return said(url, "namespaces", "create", "shop", "--if-not-exists") and "shop"


@pytest.fixture
def topic(url, shop, request):
    """A topic that no other test uses."""
    name = f"/{shop}/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    said(url, "topics", "create", name)
    return name


# Run the commands in this process, which saves a second for each.


def run(url, *arguments):
    return CliRunner().invoke(main.app, list(arguments), env={"DANUBE_URL": url})


def said(url, *arguments):
    result = run(url, *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), arguments
    return result.stdout


def told(url, *arguments):
    return json.loads(said(url, *arguments, "--format", "json"))


def refused(url, code, *arguments):
    """Return the error of a command that exits with *code*."""
    result = run(url, *arguments)
    assert (result.exit_code, result.stdout) == (code, ""), arguments
    return result.stderr


def published(url, topic, *payloads):
    words = [word for payload in payloads for word in ("-m", payload)]
    said(url, "produce", topic, *words)


# danube brokers, namespaces


def test_broker_is_listed_and_described(url, topic):
    [listed] = told(url, "brokers", "list")
    assert listed["url"] == url
    assert listed["version"].startswith("pydanube ")
    described = told(url, "brokers", "describe")
    assert described["broker_id"] == listed["broker_id"]
    assert described["namespace_count"] >= 3
    assert described["topic_count"] >= 1
    assert listed["broker_id"] in said(url, "brokers", "list")
    assert listed["broker_id"] in said(url, "brokers", "describe")


def test_a_broker_alone_is_no_cluster(url):
    assert told(url, "cluster", "status")["brokers"] == []
    assert "not part of a cluster" in said(url, "cluster", "status")
    done = danube("brokers", "drain", "x", url=url)
    assert done.returncode == 2
    assert "cluster.enabled" in done.stderr


def test_namespace_is_created_limited_and_deleted(url):
    create = ("namespaces", "create", "lab")
    assert said(url, *create) == "Namespace lab exists.\n"
    assert "already exists" in refused(url, 5, *create)
    assert said(url, *create, "--if-not-exists") == "Namespace lab exists.\n"
    listed = told(url, "namespaces", "list")
    assert [each["topic_count"] for each in listed if each["namespace"] == "lab"] == [0]
    assert "lab" in said(url, "namespaces", "list")
    configure = ("namespaces", "configure", "lab")
    limits = (
        "--set",
        "policy.max_publish_rate=5",
        "--set",
        "policy.max_message_size=9",
    )
    planned = said(url, *configure, *limits, "--dry-run")
    assert planned.startswith("lab would change:\n")
    assert told(url, *configure)["policy"]["max_publish_rate"] == 0
    assert len(told(url, *configure, *limits)["changes"]) == 2
    found = told(url, *configure)
    assert found["policy"]["max_publish_rate"] == 5
    assert found["policy"]["max_message_size"] == 9
    assert "policy.max_publish_rate" in said(url, *configure)
    assert said(url, *configure, *limits) == "lab has these settings already.\n"
    wrong = refused(url, 2, *configure, "--set", "policy.max_rate=5")
    assert "max_rate" in wrong
    delete = ("namespaces", "delete", "lab", "--yes")
    assert said(url, *delete) == "Namespace lab is deleted.\n"
    assert "lab" in refused(url, 3, *delete)


def test_namespace_with_topics_is_not_deleted(url, topic):
    error = refused(url, 4, "namespaces", "delete", "shop", "--yes")
    assert "delete them first" in error


# danube topics


def test_the_same_topics_are_found_with_and_without_admin(url, topic):
    described = told(url, "topics", "describe", topic)
    assert described == told(url, "topics", "describe", topic)
    listed = told(url, "topics", "list", "--namespace", "shop")
    assert topic in [each["topic"] for each in listed]
    said(url, "topics", "delete", topic, "--yes")
    assert "find the topic" in refused(url, 3, "topics", "describe", topic)


def test_partitions_are_created_added_and_deleted(url, shop):
    name = "/shop/clicks"
    said(url, "topics", "create", name, "--partitions", "2")
    names = [f"{name}-part-{number}" for number in range(3)]
    partitions = ("topics", "partitions", name)
    assert said(url, *partitions).splitlines() == names[:2]
    grow = ("topics", "add-partitions", name, "--total", "3")
    assert told(url, *grow) == {"topic": name, "partitions": names}
    refused(url, 2, *grow)
    said(url, "topics", "delete", name, "--yes")
    assert "find the topic" in refused(url, 3, *partitions)


def test_a_topic_has_limits_of_its_own_or_those_of_its_namespace(url, topic):
    configure = ("topics", "configure", topic)
    assert told(url, *configure)["limits"] == "inherit"
    said(url, *configure, "--set", "limits.max_message_size=4")
    assert told(url, *configure)["limits"]["max_message_size"] == 4
    error = refused(url, 2, "produce", topic, "-m", "five!")
    assert "exceeds maximum allowed 4" in error
    said(url, *configure, "--set", "limits=inherit")
    published(url, topic, "five!")
    refused(url, 3, "topics", "configure", "/shop/nothing")


# danube subscriptions


def test_failure_policy_can_be_set_before_the_subscription_exists(url, topic):
    configure = ("subscriptions", "configure", topic, "-s", "billing")
    usual = told(url, *configure)
    assert (usual["limits"]["unacked"], usual["paused"]) == ("none", False)
    change = (*configure, "--set", "failure_policy.redeliveries=3")
    planned = said(url, *change, "--dry-run")
    assert planned.startswith(f"billing of {topic} would change:\n")
    found = planned.splitlines()[-1].split()
    assert found == ["failure_policy.redeliveries", "5", "3"]
    assert told(url, *configure) == usual
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
    said(url, *change, "--set", "limits.unacked=7")
    found = told(url, *configure)
    policy = values | {"dead_letter_expired": True}
    policy |= {"redeliveries": 3, "poison": "dead_letter"}
    assert found["failure_policy"] == policy
    assert found["limits"]["unacked"] == 7
    change = (*configure, "--set", "failure_policy.ack_timeout=never")
    change += ("--set", "failure_policy.poison=drop", "--set", "limits.unacked=none")
    said(url, *change)
    found = told(url, *configure)
    policy |= {"ack_timeout": "never", "poison": "drop"}
    assert (found["failure_policy"], found["limits"]["unacked"]) == (policy, "none")
    said(url, *configure, "--set", "failure_policy=default")
    assert told(url, *configure) == usual
    wrong = refused(url, 2, *configure, "--set", "failure_policy.poison=arsenic")
    assert "poison" in wrong


def test_subscription_pauses_and_resumes(url, topic):
    which = (topic, "-s", "billing")
    said(url, "subscriptions", "create", *which, "--from", "earliest")
    published(url, topic, "one")
    pause = said(url, "subscriptions", "pause", *which)
    assert pause == f"billing of {topic} is paused.\n"
    described = told(url, "subscriptions", "describe", *which)
    assert described["is_paused"]
    resumed = told(url, "subscriptions", "resume", *which)
    assert resumed["is_paused"] is False
    consumed = danube("consume", *which, "-n", "1", url=url)
    assert consumed.stdout == "one\n"


def test_subscription_seeks_and_skips(url, topic):
    which = (topic, "-s", "billing")
    published(url, topic, "one", "two", "three")
    said(url, "subscriptions", "create", *which, "--from", "earliest")
    seek = ("subscriptions", "seek", *which, "--to")
    assert said(url, *seek, "2") == f"billing of {topic} continues at offset 2.\n"
    for place, cursor in (("earliest", 0), ("latest", 3), ("1h", 0)):
        assert told(url, *seek, place) == [
            {"topic": topic, "subscription": "billing", "cursor": cursor}
        ]
    reset = ("subscriptions", "reset", *which, "--to")
    assert said(url, *reset, "0") == f"billing of {topic} continues at offset 0.\n"
    for place, position in (("2", 2), ("latest", 3), ("1h", 0)):
        [plan] = told(url, *seek, place, "--dry-run")
        assert (plan["cursor"], plan["position"]) == (0, position)
        assert (plan["delivered_again"], plan["skipped"]) == (0, position)
    assert "beyond" in refused(url, 2, *seek, "99", "--dry-run")
    described = told(url, "subscriptions", "describe", *which)
    assert described["cursor"] == 0
    skip = ("subscriptions", "skip", *which, "--count")
    assert (
        said(url, *skip, "2")
        == f"billing of {topic} has acknowledged everything before offset 2.\n"
    )
    assert told(url, *skip, "1")["cursor"] == 3
    assert "not a position" in refused(url, 2, *seek, "newest")
    assert "beyond" in refused(url, 2, *seek, "99")
    error = refused(url, 3, "subscriptions", "pause", "/shop/no", "-s", "x")
    assert "danube topics list" in error


def test_settings_apply_to_all_partitions(url, shop):
    name = "/shop/hits"
    said(url, "topics", "create", name, "--partitions", "2")
    which = (name, "-s", "billing")
    said(url, "subscriptions", "create", *which)
    said(url, "subscriptions", "pause", *which)
    for number in range(2):
        part = (f"{name}-part-{number}", "-s", "billing")
        assert told(url, "subscriptions", "describe", *part)["is_paused"]
    seek = ("subscriptions", "seek", *which, "--to")
    assert len(told(url, *seek, "earliest")) == 2
    assert "partitions" in refused(url, 2, *seek, "0")


def test_definitions_are_imported_as_they_were_exported(url, topic, tmp_path):
    document = json.loads(said(url, "export"))
    assert topic in document["topics"]
    added = f"{topic}-imported"
    document["topics"] = {added: {"partitions": 2, "subscriptions": {}}}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    planned = said(url, "import", str(file), "--dry-run")
    assert re.search(rf"topic +{re.escape(added)} +created", planned)
    assert "this is a dry run" in planned
    assert added not in json.loads(said(url, "export"))["topics"]
    said(url, "import", str(file))
    assert json.loads(said(url, "export"))["topics"][added]["partitions"] == 2
    assert said(url, "import", str(file)).endswith(" unchanged.\n")
    document["topics"] = {added: {"partitions": 1}}
    file.write_text(json.dumps(document))
    failed = run(url, "import", str(file))
    assert failed.exit_code == 1
    assert "it has 2 partitions, not 1" in re.sub(r"\s+", " ", failed.stdout)


def test_connections_are_listed_and_closed(url, topic):
    with connect(url) as client, client.consumer(topic, subscription="s", name="ada"):
        listed = said(url, "connections", "list", "--topic", topic, "--format", "json")
        [found] = json.loads(listed)
        assert [each["name"] for each in found["members"]] == ["ada"]
        number, broker = str(found["connection_id"]), found["broker_id"]
        closed = said(url, "connections", "close", number, "--broker", broker)
        assert closed == f"Connection {number} is closed.\n"
        wrong = run(url, "connections", "close", "1", "--broker", broker)
        assert "no connection 1" in wrong.stderr
