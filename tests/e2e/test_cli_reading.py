"""Looking at topics from the command line, without a subscription."""

from __future__ import annotations

import json
import re
import signal

import pytest

from support.drivers.commands import danube, end, start_danube
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


def test_reading_prints_a_range_and_leaves_no_subscription(url, topic):
    run("produce", topic, url=url, stdin="0\n1\n2\n3\n")
    assert run("read", topic, "-o", "raw", url=url) == "0\n1\n2\n3\n"
    part = ("--from", "1", "--to", "3")
    assert run("read", topic, *part, "-o", "raw", url=url) == "1\n2\n"
    assert run("read", topic, "--from", "10m", "-n1", "-o", "raw", url=url) == "0\n"
    assert run("read", topic, "--to", "10m", "-o", "raw", url=url) == ""
    heading, _, *rows = run("read", topic, "--from", "2", url=url).splitlines()
    assert heading.split() == ["Offset", "Published", "Key", "Attributes", "Payload"]
    assert [row.split()[0] for row in rows] == ["2", "3"]
    facts = json.loads(run("topics", "describe", topic, "--format", "json", url=url))
    assert facts["subscriptions"] == []


def test_partitions_and_patterns_are_read_together(url, topic):
    run("topics", "create", f"{topic}-a", "--partitions", "2", url=url)
    for name, key in ((f"{topic}-a", "x"), (f"{topic}-b", "y"), (f"{topic}-a", "z")):
        run("produce", name, "-m", key, "--key", key, url=url)
    lines = run("read", f"{topic}-*", "-o", "json", url=url).splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["x", "y", "z"]
    table = run("read", f"{topic}-a", url=url)
    assert table.startswith("Topic ")
    assert f"{topic}-a-part-" in table


def test_messages_are_printed_by_a_template(url, topic):
    run("produce", topic, "-m", "a", "-m", "b", "--key", "k", url=url)
    assert run("read", topic, "-f", r"%o %k %v\n", url=url) == "0 k a\n1 k b\n"
    assert (
        run("read", "--follow", topic, "--from", "1", "-n1", "-f", "%p", url=url) == "b"
    )
    wrong = danube("read", topic, "-f", "%o %x", url=url)
    assert wrong.returncode == 2
    assert "'%x' at character 4" in wrong.stderr


def test_conditions_select_messages(url, topic):
    lines = "".join(f'{{"n": {n}}}\n' for n in range(10))
    run("produce", topic, "-k", "k", url=url, stdin=lines)
    where = ("--where", "value.n >= 4", "-w", "value.n != 5", "-w", "key = 'k'")
    printed = run("read", topic, *where, "-n", "3", "-f", "%o ", url=url)
    assert printed == "4 6 7 "
    following = (
        "read",
        "--follow",
        topic,
        "--from",
        "0",
        *where,
        "-n",
        "1",
        "-f",
        "%o",
    )
    assert run(*following, url=url) == "4"
    wrong = danube("read", topic, "--where", "value.n => 1", url=url)
    assert wrong.returncode == 2
    assert "'value.n => 1': character 10 should be a number" in wrong.stderr


def test_messages_are_copied_with_keys_attributes_and_times(url, topic):
    first = ("-m", "first", "-k", "k", "-a", "a=1", "--ttl", "1h")
    run("produce", topic, *first, url=url)
    assert danube("produce", topic, url=url, stdin=b"\xff\n").returncode == 0
    source = run("read", topic, "-o", "json", url=url)
    run("produce", f"{topic}-2", "--input", "json", url=url, stdin=source)
    copy = run("read", f"{topic}-2", "-o", "json", url=url)
    for before, after in zip(source.splitlines(), copy.splitlines(), strict=True):
        changed = {"topic": f"{topic}-2", "producer": json.loads(after)["producer"]}
        assert json.loads(after) == json.loads(before) | changed
    assert '"expires_at"' in copy
    assert '"payload_base64": "/w=="' in copy


def test_malformed_record_ends_the_command_and_counts_those_before(url, topic):
    records = '{"payload": "a"}\n{"payload": "b"}\n{"payload": 5}\n{"payload": "c"}\n'
    done = danube("produce", topic, "--input", "json", url=url, stdin=records)
    assert done.returncode == 2
    assert done.stdout.startswith(f"Published 2 messages to {topic}")
    assert done.stderr == (
        "error: line 3: payload is 5: it should be a text; the 2 messages before it "
        "were published\n"
    )
    assert run("read", topic, "-f", "%p", url=url) == "ab"
    for options in (("--input", "csv", "-m", "x"), ("--key-field", "a[")):
        assert danube("produce", topic, *options, url=url).returncode == 2


def test_rows_and_values_are_encoded_by_a_schema(url, topic, tmp_path):
    definition = tmp_path / "sale.avsc"
    definition.write_text(
        '{"type": "record", "name": "Sale", "fields": [{"name": "shop", "type": '
        '"string"}, {"name": "total", "type": ["string", "long"]}]}'
    )
    subject = topic.rpartition("/")[2]
    run("schemas", "register", subject, "-f", str(definition), url=url)
    produce = ("produce", topic, "--schema", subject, "--key-field", "shop")
    run(*produce, "--input", "csv", url=url, stdin="shop,total\n7,10\n")
    value = '{"shop": "8", "total": 25}'
    time = "2025-03-01T09:30:00Z"
    record = f'{{"value": {value}, "publish_time": "{time}"}}\n{{"value": 5}}\n'
    done = danube(*produce, "--input", "json", url=url, stdin=record)
    assert "line 2: the value has no field shop; the message before" in done.stderr
    refused = danube(*produce, url=url, stdin='{"shop": "9"}\n')
    assert "line 1: " in refused.stderr
    assert "nothing was published" in refused.stderr
    assert run("read", topic, "-f", r"%k %v\n", url=url) == (
        '7 {"shop":"7","total":"10"}\n8 {"shop":"8","total":25}\n'
    )
    [_, last] = run("read", topic, "-o", "json", "--decode", url=url).splitlines()
    assert json.loads(last)["publish_time"] == time
    assert json.loads(last)["value"] == json.loads(value)


def test_following_prints_new_messages_until_it_is_interrupted(url, topic):
    run("produce", topic, "-m", "old", url=url)
    tail = start_danube("read", "--follow", topic, "--from", "0", "-o", "raw", url=url)
    assert tail.stdout.readline() == b"old\n"
    run("produce", topic, "-m", "new", url=url)
    assert tail.stdout.readline() == b"new\n"
    assert end(tail, signal.SIGINT) == (130, "", "")
    limited = ("read", "--follow", topic, "--from", "1", "-n", "1", "-o", "raw")
    assert run(*limited, url=url) == "new\n"


@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_commands_end_quietly_when_their_reader_closes_the_pipe(url, topic, options):
    run("produce", topic, url=url, stdin="x\n" * 100_000)
    reading = start_danube("read", *options, topic, "--from", "0", "-o", "raw", url=url)
    assert reading.stdout.readline() == b"x\n"
    reading.stdout.close()
    assert reading.wait(timeout=120) == 128 + signal.SIGPIPE
    assert reading.stderr.read() == b""
    reading.stderr.close()
    reading.stdin.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("/default/unknwn",), 3, "did you mean '/default/unknown'"),
        (("/default/unknown", "--from", "7"), 2, "ends at offset 0"),
        (("/default/unknown", "--from", "yesterday"), 2, "not a position"),
        (("/default/unknown", "--from", "2", "--to", "1"), 2, "is after --to"),
    ],
)
def test_mistakes_are_explained(url, arguments, code, said):
    run("topics", "create", "/default/unknown", "--if-not-exists", url=url)
    done = danube("read", *arguments, url=url)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
