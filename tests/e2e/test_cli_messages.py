"""Partitions, delays, keys, access and dead letters from the command line."""

from __future__ import annotations

import json
import re

import pytest

from support.drivers.commands import danube, start_danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def process_url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url
        assert broker.stop() == 0


@pytest.fixture
def topic(request):
    """A name that no other test uses."""
    return "/default/" + re.sub(r"\W+", "-", request.node.name).strip("-")


def run(*arguments, url, stdin=""):
    done = danube(*arguments, url=url, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer_of(*arguments, url):
    return json.loads(run(*arguments, "--format", "json", url=url))


def consumed(topic, *arguments, url):
    lines = run(
        *("consume", topic, "-s", "s", "--from", "earliest", "--output", "json"),
        *arguments,
        url=url,
    )
    return [json.loads(line) for line in lines.splitlines()]


def test_a_partitioned_topic_is_used_by_its_name(url, topic):
    created = answer_of("topics", "create", topic, "--partitions", "3", url=url)
    assert [each["topic"] for each in created["partitions"]] == [
        f"{topic}-part-{n}" for n in range(3)
    ]
    said = run("produce", topic, "-m", "m", "-n", "20000", url=url)
    assert "to 3 partitions" in said
    for n in range(6):
        run("produce", topic, "-m", str(n), "--key", f"key-{n % 2}", url=url)
    got = consumed(topic, "-n", "20006", url=url)
    keyed = [each for each in got if each["key"]]
    assert len({(each["key"], each["topic"]) for each in keyed}) == 2
    for key in ("key-0", "key-1"):
        payloads = [each["payload"] for each in keyed if each["key"] == key]
        assert payloads == sorted(payloads)

    described = answer_of("topics", "describe", topic, url=url)
    assert sum(each["end_offset"] for each in described["partitions"]) == 20_006
    assert "Partitions  3" in run("topics", "describe", topic, url=url)
    assert f"{topic}  " in run("topics", "list", url=url)
    backlogs = answer_of("subscriptions", "describe", topic, "-s", "s", url=url)
    assert [each["backlog"] for each in backlogs] == [0, 0, 0]
    assert f"{topic}-part-2" in run("subscriptions", "list", topic, url=url)
    run("topics", "delete", topic, "--yes", url=url)
    assert danube("topics", "describe", topic, url=url).returncode == 3


def test_messages_may_be_delayed_and_may_expire(url, topic):
    run("produce", topic, "-m", "far", "--delay", "1h", "--ttl", "2h", url=url)
    run("produce", topic, "-m", "stale", "--ttl", "1ms", url=url)
    run("produce", topic, "-m", "now", url=url)
    got = consumed(topic, "-n", "1", url=url)
    assert [each["payload"] for each in got] == ["now"]
    run("produce", topic, "-m", "late", "--delay", "100ms", url=url)
    got = consumed(topic, "-n", "1", url=url)
    assert [each["payload"] for each in got] == ["late"]
    facts = answer_of("subscriptions", "describe", topic, "-s", "s", url=url)
    assert (facts["backlog"], facts["counts"]["expired"]) == (1, 1)
    refused = danube(
        "produce", topic, "-m", "x", "--delay", "1h", "--ttl", "1m", url=url
    )
    assert refused.returncode == 2
    assert "expire before" in refused.stderr


def test_key_filters_select_messages(url, topic):
    for key in ("eu-1", "us-1", "eu-2", "us-2"):
        run("produce", topic, "-m", key, "--key", key, url=url)
    shared = ("--type", "key-shared", "--key-filter", "eu-*", "--priority", "-1")
    got = consumed(topic, *shared, "-n", "2", url=url)
    assert [each["payload"] for each in got] == ["eu-1", "eu-2"]
    other = ("--type", "key-shared", "--key-filter", "us-?")
    got = consumed(topic, *other, "-n", "2", url=url)
    assert [each["payload"] for each in got] == ["us-1", "us-2"]
    wrong = danube("consume", topic, "-s", "s", "--type", "many", url=url)
    assert wrong.returncode == 2
    assert "'key_shared'" in wrong.stderr


def test_a_subscription_may_begin_at_an_offset_or_a_time(url, topic):
    run("produce", topic, "-m", "0", "-m", "1", "-m", "2", url=url)
    consume = ("consume", topic, "-n", "1", "--timeout", "10s")
    assert run(*consume, "-s", "a", "--from", "2", url=url) == "2\n"
    assert run(*consume, "-s", "b", "--from", "1h", url=url) == "0\n"
    created = answer_of(
        "subscriptions", "create", topic, "-s", "c", "--from", "1", url=url
    )
    assert created["cursor"] == 1
    assert danube(*consume, "-s", "d", "--from", "7", url=url).returncode == 2


def test_exclusive_producer_refuses_others(url, topic):
    first = start_danube("produce", topic, "--access", "exclusive", url=url)
    assert first.stdin is not None
    first.stdin.write(b"first\n")
    assert consumed_when_there(topic, url) == "first\n"
    refused = danube("produce", topic, "-m", "second", url=url)
    assert refused.returncode == 4
    assert "exclusive" in refused.stderr
    waiting = start_danube(
        "produce", topic, "-m", "third", "--access", "exclusive-wait", url=url
    )
    first.communicate(timeout=120)
    waiting.communicate(timeout=120)
    assert (first.returncode, waiting.returncode) == (0, 0)
    got = consumed(topic, "-n", "1", url=url)
    assert [each["payload"] for each in got] == ["third"]


def consumed_when_there(topic, url):
    """Return the first message, after its producer has created the topic."""
    while True:
        done = danube(
            *("consume", topic, "-s", "s", "--from", "earliest", "-n", "1"), url=url
        )
        if done.returncode != 3:
            assert done.returncode == 0, done.stderr
            return done.stdout


@pytest.fixture
def dead(url, topic):
    """A topic with two dead letters of the subscription s."""
    run("topics", "create", topic, url=url)
    run("topics", "create", f"{topic}-dead", url=url)
    run("subscriptions", "create", topic, "-s", "s", url=url)
    run(
        *("subscriptions", "configure", topic, "-s", "s"),
        *("--set", "failure_policy.redeliveries=0"),
        *("--set", f"failure_policy.dead_letter_topic={topic}-dead"),
        url=url,
    )
    for payload, reason in (("no number", "cannot parse"), ("no user", "unknown user")):
        run("produce", topic, "-m", payload, "--key", "k", "-a", "n=v", url=url)
        run("consume", topic, "-s", "s", "-n", "1", "--nack", reason, url=url)
    while len(answer_of("dead-letters", "list", topic, "-s", "s", url=url)) < 2:
        pass
    return topic


def test_dead_letters_are_listed_and_shown(url, dead):
    named = (dead, "-s", "s")
    letters = answer_of("dead-letters", "list", *named, url=url)
    assert [each["reason"] for each in letters] == ["cannot parse", "unknown user"]
    assert [each["original_offset"] for each in letters] == [0, 1]
    assert letters[0]["message"]["payload"] == "no number"
    assert letters[0]["message"]["attributes"]["n"] == "v"
    table = run("dead-letters", "list", *named, "--reason", "parse", url=url)
    assert "cannot parse" in table
    assert "unknown user" not in table
    shown = run("dead-letters", "show", *named[:1], "1", *named[1:], url=url)
    assert "unknown user" in shown
    assert shown.rstrip().endswith("no user")
    missing = danube("dead-letters", "show", dead, "7", "-s", "s", url=url)
    assert missing.returncode == 3


def test_dead_letters_are_replayed_and_dropped(url, dead):
    named = (dead, "-s", "s")
    choose = ("--reason", "parse")
    dry = danube("dead-letters", "replay", *named, *choose, "--dry-run", url=url)
    assert "1 dead letter would be replayed" in dry.stderr
    assert len(answer_of("dead-letters", "list", *named, url=url)) == 2
    assert danube("dead-letters", "replay", *named, url=url).returncode == 2

    done = answer_of("dead-letters", "replay", *named, *choose, "--yes", url=url)
    assert done == {"replayed": 1}
    got = consumed(dead, "-n", "1", url=url)
    assert (got[0]["payload"], got[0]["offset"]) == ("no number", 2)
    assert got[0]["attributes"]["x-failure-reason"] == "cannot parse"
    assert run("dead-letters", "drop", *named, "--offset", "1", "--yes", url=url) == (
        "1 dead letter dropped.\n"
    )
    assert answer_of("dead-letters", "list", *named, url=url) == []
    left = answer_of("dead-letters", "replay", *named, "--yes", url=url)
    assert left == {"replayed": 0}


def test_missing_dead_letter_topic_is_explained(url, topic):
    run("topics", "create", topic, url=url)
    asked = danube("dead-letters", "list", topic, "-s", "s", url=url)
    assert asked.returncode == 2
    assert "no dead-letter topic" in asked.stderr
