"""`danube-admin` asks what the original asks, and prints what the original prints."""

from __future__ import annotations

import json
import subprocess
from shutil import which

import grpc
import pytest
from typer.testing import CliRunner

from pydanube.cli.danube_admin import app, hoisted
from pydanube.cli.topic_arguments import topic_name
from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube.wire.pb import danube_admin_pb2 as pb
from support.danube_server import danube_server

DONE = pb.TopicResponse(success=True)


@pytest.fixture(scope="module")
def server():
    with danube_server(pb.DESCRIPTOR) as told:
        yield told


@pytest.fixture
def broker(server):
    server.answers.clear()
    server.requests.clear()
    server.metadata.clear()
    return server


def run(broker, *arguments, **environment):
    return CliRunner().invoke(
        app, ["--endpoint", broker.url, *arguments], env=environment
    )


def said(broker, *arguments):
    """What a command that succeeds prints."""
    result = run(broker, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def told(broker, *arguments):
    """The same as JSON."""
    return json.loads(said(broker, *arguments, "--output", "json"))


# Brokers.


def test_brokers_are_a_table_or_json(broker):
    info = {
        "broker_id": "7",
        "broker_status": "active",
        "broker_addr": "http://b:6650",
        "broker_role": "Cluster_Leader",
        "admin_addr": "http://b:50051",
        "metrics_addr": "",
    }
    broker.answers["ListBrokers"] = pb.BrokerListResponse(
        brokers=[pb.BrokerInfo(**info)]
    )
    head, _, row = said(broker, "brokers", "list").splitlines()
    columns = "BROKER ID STATUS ADDRESS ROLE ADMIN ADDR METRICS ADDR"
    assert " ".join(head.split()) == columns
    assert row.split()[:3] == ["7", "active", "http://b:6650"]
    assert told(broker, "brokers", "list") == [info]


def test_the_leader_is_named(broker):
    broker.answers["GetLeaderBroker"] = pb.BrokerResponse(leader="7")
    assert said(broker, "brokers", "leader-broker") == 'Leader Broker: "7"\n'


def test_namespaces_are_lines_or_json(broker):
    broker.answers["ListNamespaces"] = pb.NamespaceListResponse(namespaces=["a", "b"])
    assert said(broker, "brokers", "namespaces") == "Namespace: a\nNamespace: b\n"
    assert told(broker, "brokers", "namespaces") == ["a", "b"]


def test_unloading_is_asked_with_every_wish_and_summed_up(broker):
    broker.answers["UnloadBroker"] = pb.UnloadBrokerResponse(
        started=True, total=3, succeeded=2, failed=1, failed_topics=["/a/b: busy"]
    )
    result = run(
        broker,
        *("brokers", "unload", "--broker-id", "7", "--max-parallel", "2"),
        *("--namespaces-include", "a", "--namespaces-include", "b"),
        *("--namespaces-exclude", "c", "--dry-run", "--timeout-seconds", "5"),
    )
    assert result.stdout == (
        "UnloadBroker started=true total=3 succeeded=2 failed=1 pending=0\n"
    )
    assert result.stderr == "/a/b: busy\n"
    assert broker.asked("UnloadBroker") == [
        pb.UnloadBrokerRequest(
            broker_id="7",
            max_parallel=2,
            namespaces_include=["a", "b"],
            namespaces_exclude=["c"],
            dry_run=True,
            timeout_seconds=5,
        )
    ]


def test_activating_has_a_reason(broker):
    broker.answers["ActivateBroker"] = pb.ActivateBrokerResponse(success=True)
    activate = ("brokers", "activate", "--broker-id", "7")
    assert said(broker, *activate) == "ActivateBroker success=true\n"
    [request] = broker.asked("ActivateBroker")
    assert (request.broker_id, request.reason) == ("7", "admin_activate")


def test_balance_is_a_report_or_json_without_the_strategy(broker):
    broker.answers["GetClusterBalance"] = pb.ClusterBalanceResponse(
        coefficient_of_variation=0.25,
        broker_count=1,
        assignment_strategy="Fair",
        brokers=[pb.BrokerLoadInfo(broker_id=7, load=1.5, topic_count=3)],
    )
    report = said(broker, "brokers", "balance")
    assert "Coefficient of Variation: 25.00%\n" in report
    document = told(broker, "brokers", "balance")
    assert "assignment_strategy" not in document
    assert document["brokers"] == [
        {
            "broker_id": 7,
            "load": 1.5,
            "topic_count": 3,
            "is_overloaded": False,
            "is_underloaded": False,
        }
    ]


def test_a_rebalance_says_what_it_moved(broker):
    broker.answers["TriggerRebalance"] = pb.RebalanceResponse(
        success=True,
        moves_executed=1,
        proposed_moves=[
            pb.ProposedMove(
                topic_name="/a/b", from_broker=1, to_broker=2, reason="LoadImbalance"
            )
        ],
        error_message="started",
    )
    report = said(broker, "brokers", "rebalance", "--max-moves", "4")
    assert "  /a/b: 1 -> 2 (LoadImbalance)\n" in report
    assert report.endswith("started\n")
    [request] = broker.asked("TriggerRebalance")
    assert request.max_moves == 4
    said(broker, "brokers", "rebalance", "--dry-run")
    assert not broker.asked("TriggerRebalance")[-1].HasField("max_moves")


# Namespaces.


def test_topics_of_a_namespace_are_lines_or_json(broker):
    broker.answers["GetNamespaceTopics"] = pb.TopicListResponse(topics=["a/b"])
    assert said(broker, "namespaces", "topics", "a") == "Topic: a/b\n"
    assert told(broker, "namespaces", "topics", "a") == ["a/b"]


def test_policies_are_lines_or_the_document(broker):
    document = {"max_publish_rate": 5, "max_message_size": 0}
    broker.answers["GetNamespacePolicies"] = pb.PolicyResponse(
        policies=json.dumps(document)
    )
    assert "  max_publish_rate: 5\n" in said(broker, "namespaces", "policies", "a")
    assert told(broker, "namespaces", "policies", "a") == document


def test_namespaces_come_and_go(broker):
    broker.answers["CreateNamespace"] = pb.NamespaceResponse(success=True)
    broker.answers["DeleteNamespace"] = pb.NamespaceResponse(success=True)
    assert said(broker, "namespaces", "create", "a") == "Namespace Created: true\n"
    assert said(broker, "namespaces", "delete", "a") == "Namespace Deleted: true\n"


# Topics.


def test_topics_of_a_namespace_or_a_broker_are_lines_or_json(broker):
    rows = [
        {"name": "/a/b", "broker_id": "7", "delivery": "Reliable"},
        {"name": "/a/c", "broker_id": "", "delivery": "NonReliable"},
    ]
    answer = pb.TopicInfoListResponse(topics=[pb.TopicInfo(**row) for row in rows])
    broker.answers["ListNamespaceTopics"] = answer
    broker.answers["ListBrokerTopics"] = answer
    assert said(broker, "topics", "list", "--namespace", "a") == (
        "Topic: /a/b (broker_id: 7, delivery: Reliable)\n"
        "Topic: /a/c (delivery: NonReliable)\n"
    )
    assert told(broker, "topics", "list", "--broker", "7") == rows


@pytest.mark.parametrize("choice", [(), ("--namespace", "a", "--broker", "7")])
def test_topics_are_of_a_namespace_or_of_a_broker(broker, choice):
    result = run(broker, "topics", "list", *choice)
    assert result.exit_code != 0
    assert "--namespace" in result.stderr


def test_a_topic_is_created_as_it_is_wanted(broker):
    broker.answers["CreateTopic"] = DONE
    create = ("topics", "create", "b", "--namespace", "a", "--schema-subject", "s")
    assert said(broker, *create, "--dispatch-strategy", "reliable_dispatch") == (
        "✅ Topic created: /a/b\n   Schema subject: s\n"
    )
    assert said(broker, "topics", "create", "a/b") == "✅ Topic created: /a/b\n"
    assert broker.asked("CreateTopic") == [
        pb.NewTopicRequest(
            name="/a/b", schema_subject="s", dispatch_strategy=pb.Reliable
        ),
        pb.NewTopicRequest(name="/a/b", dispatch_strategy=pb.NonReliable),
    ]


def test_a_partitioned_topic_is_created_as_it_is_wanted(broker):
    broker.answers["CreatePartitionedTopic"] = DONE
    create = ("topics", "create", "/a/b", "--partitions", "3")
    assert said(broker, *create, "--dispatch-strategy", "reliable") == (
        "✅ Partitioned topic created: /a/b\n   Partitions: 3\n"
    )
    [request] = broker.asked("CreatePartitionedTopic")
    assert (request.base_name, request.partitions) == ("/a/b", 3)
    assert request.dispatch_strategy == pb.Reliable


@pytest.mark.parametrize(
    ("command", "method", "line"),
    [
        ("delete", "DeleteTopic", "Topic Deleted: true\n"),
        ("unload", "UnloadTopic", "Topic Unloaded: true\n"),
    ],
)
def test_what_is_done_to_a_topic_is_said(broker, command, method, line):
    broker.answers[method] = DONE
    assert said(broker, "topics", command, "/a/b") == line
    assert broker.asked(method) == [pb.TopicRequest(name="/a/b")]


def test_subscriptions_are_a_list(broker):
    broker.answers["ListSubscriptions"] = pb.SubscriptionListResponse(
        subscriptions=["x", "y"]
    )
    assert said(broker, "topics", "subscriptions", "/a/b") == (
        'Subscriptions: ["x", "y"]\n'
    )
    assert told(broker, "topics", "subscriptions", "/a/b") == ["x", "y"]


def test_what_a_topic_has_not_is_null(broker):
    broker.answers["DescribeTopic"] = pb.DescribeTopicResponse(
        name="/a/b", broker_id="7", delivery="Reliable", subscriptions=["x"]
    )
    assert told(broker, "topics", "describe", "/a/b") == {
        "topic": "/a/b",
        "broker_id": "7",
        "delivery": "Reliable",
        "schema_subject": None,
        "schema_id": None,
        "schema_version": None,
        "schema_type": None,
        "compatibility_mode": None,
        "subscriptions": ["x"],
    }
    broker.answers["DescribeTopic"].schema_subject = "s"
    text = said(broker, "topics", "describe", "/a/b")
    assert "Schema Subject: s\n" in text
    assert "Schema Id" not in text


def test_unsubscribing_is_said(broker):
    broker.answers["Unsubscribe"] = pb.SubscriptionResponse(success=True)
    done = said(broker, "topics", "unsubscribe", "/a/b", "-s", "x")
    assert done == "Unsubscribed: true\n"


POLICY = pb.SubscriptionFailurePolicy(
    max_redelivery_count=3,
    ack_timeout_ms=1000,
    base_redelivery_delay_ms=100,
    max_redelivery_delay_ms=5000,
    backoff_strategy=pb.Exponential,
    dead_letter_topic="/a/dead",
    poison_policy=pb.DeadLetter,
)


@pytest.mark.parametrize("poison", ["dead_letter", "dead-letter"])
def test_a_failure_policy_is_sent_as_it_is_wanted(broker, poison):
    broker.answers["SetSubscriptionFailurePolicy"] = pb.SubscriptionResponse(
        success=True
    )
    done = said(
        broker,
        *("topics", "set-failure-policy", "a/b", "-s", "x"),
        *("--max-redelivery-count", "3", "--ack-timeout-ms", "1000"),
        *("--base-redelivery-delay-ms", "100", "--max-redelivery-delay-ms", "5000"),
        *("--backoff-strategy", "exponential", "--dead-letter-topic", "/a/dead"),
        *("--poison-policy", poison),
    )
    assert done == "✅ Failure policy updated for topic '/a/b' subscription 'x'\n"
    assert broker.asked("SetSubscriptionFailurePolicy") == [
        pb.SetSubscriptionFailurePolicyRequest(
            topic="/a/b", subscription="x", failure_policy=POLICY
        )
    ]


def test_a_failure_policy_is_shown_as_it_is(broker):
    broker.answers["GetSubscriptionFailurePolicy"] = (
        pb.GetSubscriptionFailurePolicyResponse(failure_policy=POLICY)
    )
    get = ("topics", "get-failure-policy", "/a/b", "-s", "x")
    assert told(broker, *get) == {
        "topic": "/a/b",
        "subscription": "x",
        "max_redelivery_count": 3,
        "ack_timeout_ms": 1000,
        "base_redelivery_delay_ms": 100,
        "max_redelivery_delay_ms": 5000,
        "backoff_strategy": "exponential",
        "dead_letter_topic": "/a/dead",
        "poison_policy": "dead_letter",
    }
    assert "poison_policy: dead_letter\n" in said(broker, *get)


def test_no_failure_policy_is_an_error(broker):
    broker.answers["GetSubscriptionFailurePolicy"] = (
        pb.GetSubscriptionFailurePolicyResponse()
    )
    result = run(broker, "topics", "get-failure-policy", "/a/b", "-s", "x")
    assert result.exit_code != 0
    assert "subscription failure policy not found" in result.stderr


# Everywhere.


def test_what_the_broker_refuses_is_an_error_with_its_text(broker):
    broker.answers["CreateTopic"] = (grpc.StatusCode.NOT_FOUND, "Topic already exists")
    result = run(broker, "topics", "create", "/a/b")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: Topic already exists (NOT_FOUND)\n"


def test_a_broker_that_is_not_there_is_named():
    result = CliRunner().invoke(
        app, ["--endpoint", "http://127.0.0.1:1", "brokers", "list"]
    )
    assert result.exit_code == 1
    assert "no broker answers at http://127.0.0.1:1" in result.stderr


def test_the_token_goes_along(broker):
    broker.answers["GetLeaderBroker"] = pb.BrokerResponse(leader="7")
    run(broker, "brokers", "leader-broker", DANUBE_ADMIN_TOKEN="secret")
    run(broker, "brokers", "leader-broker")
    first, second = broker.metadata
    assert first["authorization"] == "Bearer secret"
    assert "authorization" not in second


def test_the_endpoint_may_come_from_the_environment(broker):
    broker.answers["GetLeaderBroker"] = pb.BrokerResponse(leader="7")
    bare = broker.url.removeprefix("http://")
    result = CliRunner().invoke(
        app, ["brokers", "leader-broker"], env={"DANUBE_ADMIN_ENDPOINT": bare}
    )
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("cluster", "status"),
        ("cluster", "add-node", "--node-addr", "http://x"),
        ("security", "roles", "list", "--output", "json"),
        ("serve", "--mode", "ui"),
        ("server",),
    ],
)
def test_what_is_not_available_says_so(broker, command):
    result = run(broker, *command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not available: this version of pydanube" in result.stderr
    assert broker.requests == []


@pytest.mark.skipif(which("openssl") is None, reason="nothing makes certificates")
def test_the_connection_may_be_protected(tmp_path):
    make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker.example"
    alias = "subjectAltName=DNS:broker.example"
    files = ["-addext", alias, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(
        ["openssl", *make.split(), *files],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    pair = (key.read_bytes(), certificate.read_bytes())
    # Clients have to show a certificate, too.
    credentials = grpc.ssl_server_credentials([pair], pair[1], True)
    trust = {
        "DANUBE_ADMIN_CA": str(certificate),
        "DANUBE_ADMIN_DOMAIN": "broker.example",
        "DANUBE_ADMIN_CERT": str(certificate),
        "DANUBE_ADMIN_KEY": str(key),
    }
    with danube_server(pb.DESCRIPTOR, credentials=credentials) as broker:
        broker.answers["GetLeaderBroker"] = pb.BrokerResponse(leader="7")
        done = run(broker, "brokers", "leader-broker", **trust)
        assert (done.exit_code, done.stdout) == (0, 'Leader Broker: "7"\n')
        # The scheme may be left to a variable.
        broker.url = broker.url.removeprefix("https://")
        asked = {**trust, "DANUBE_ADMIN_TLS": "true"}
        assert run(broker, "brokers", "leader-broker", **asked).exit_code == 0
        assert run(broker, "brokers", "leader-broker", **trust).exit_code == 1


def test_a_missing_certificate_is_named(broker):
    result = run(
        broker,
        *("brokers", "leader-broker"),
        DANUBE_ADMIN_TLS="1",
        DANUBE_ADMIN_CA="/no/such.pem",
    )
    assert result.exit_code == 2
    assert "/no/such.pem cannot be read" in result.stderr


# Names.


@pytest.mark.parametrize(
    ("topic", "namespace"), [("/a/b", None), ("a/b", None), ("b", "a"), ("/a/b", "a")]
)
def test_a_topic_is_named_in_three_ways(topic, namespace):
    assert topic_name(topic, namespace) == "/a/b"


@pytest.mark.parametrize(
    ("topic", "namespace", "error"),
    [
        ("b", None, InvalidRequest),
        ("/c/b", "a", InvalidRequest),
        ("/a/b/c", None, InvalidName),
        ("a.b", "a", InvalidName),
    ],
)
def test_a_topic_without_a_namespace_or_with_two_is_refused(topic, namespace, error):
    with pytest.raises(error):
        topic_name(topic, namespace)


@pytest.mark.parametrize(
    ("arguments", "moved"),
    [
        ("brokers list --endpoint x", "--endpoint x brokers list"),
        ("brokers --endpoint=x list", "--endpoint=x brokers list"),
        ("--endpoint x brokers list", "--endpoint x brokers list"),
        ("topics delete -- --endpoint", "topics delete -- --endpoint"),
        ("brokers list --endpoint", "brokers list --endpoint"),
        ("", ""),
    ],
)
def test_the_endpoint_may_stand_anywhere(arguments, moved):
    assert hoisted(arguments.split()) == moved.split()
