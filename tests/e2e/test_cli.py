"""The command line, with commands and a broker as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from pydanube.model.version import __version__
from support.drivers.commands import DANUBE, danube, end, environment, start_danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

TOPIC = "/default/orders"
FREE_PORTS = ("--stream-port", "0", "--grpc-port", "0", "--admin-port", "0")
FREE_PORTS += ("--http-port", "0")


@pytest.fixture(scope="module")
def process_url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url
        assert broker.stop() == 0


@pytest.fixture
def topic(url, request):
    """A topic that no other test uses."""
    name = "/default/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    assert danube("topics", "create", name, url=url).returncode == 0
    return name


def answer_of(*arguments, url):
    """Return the JSON output of a command."""
    done = danube(*arguments, "--format", "json", url=url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cursor_of(topic, subscription, url):
    described = answer_of(
        "subscriptions", "describe", topic, "-s", subscription, url=url
    )
    return described["cursor"]


def published(url, topic, *lines):
    done = danube("produce", topic, url=url, stdin="".join(f"{x}\n" for x in lines))
    assert done.returncode == 0, done.stderr


# Broker.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_broker_prints_its_addresses_and_stops_cleanly(tmp_path, number):
    broker = start_danube(
        *("broker", "--data-dir", str(tmp_path), "--stream-port", "0"),
        *("--grpc-port", "0", "--admin-port", "0"),
        *("--http-port", "0", "--log-format", "json"),
    )
    said = "".join(broker.stdout.readline().decode() for _ in range(6))
    code, _, log = end(broker, number)
    assert "danube://127.0.0.1:" in said
    assert said.count("http://127.0.0.1:") == 3
    assert str(tmp_path) in said
    assert code == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events[0].startswith(f"starting pydanube {__version__}, process ")
    assert str(tmp_path) in events[0]
    assert events[1].startswith("read the journal in ")
    assert events[2].startswith("serving after ")
    assert all(url in events[2] for url in re.findall(r"\w+://\S+", said))
    assert events[3] == f"received {signal.Signals(number).name}"
    assert events[-1] == "stopped"


def test_messages_and_cursors_survive_a_restart(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        published(broker.url, TOPIC, "one", "two", "three")
        consume = ("consume", TOPIC, "-s", "me", "--from", "earliest", "-n")
        assert danube(*consume, "1", url=broker.url).stdout == "one\n"
        assert broker.stop() == 0
        broker.start()
        assert danube(*consume, "2", url=broker.url).stdout == "two\nthree\n"


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        second = danube(
            *("broker", "--data-dir", str(tmp_path), *FREE_PORTS),
        )
        assert second.returncode == 4
        error = second.stderr.splitlines()[-1]
        assert error.startswith("error: the data directory")
        assert str(broker.pid) in error
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize("flag", FREE_PORTS[::2])
def test_error_names_the_port_that_is_in_use(tmp_path, url, flag):
    port = url.rpartition(":")[2]
    done = danube("broker", "--data-dir", str(tmp_path), *FREE_PORTS, flag, port)
    assert done.returncode == 2
    assert port in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("listen: {strem_port: 1}", "config.listen: unknown setting 'strem_port'"),
        ("listen: {stream_port: many}", "config.listen.stream_port"),
        ("listen: {host: 0.0.0.0}", "accept with --insecure"),
        ("[]", "must contain settings by name"),
    ],
)
def test_invalid_configuration_is_refused_with_its_place(tmp_path, yaml, said):
    path = tmp_path / "broker.yaml"
    path.write_text(yaml, encoding="utf-8")
    done = danube("broker", "--config", str(path), "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "d").exists()


def test_flags_override_the_environment_and_it_overrides_the_file(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("data_dir: from-file\nlisten: {host: 256.0.0.1}\n", "utf-8")
    broker = start_danube(
        *("broker", "--config", str(path), "--data-dir", str(tmp_path / "from-flag")),
        *FREE_PORTS,
        DANUBE_DATA_DIR=str(tmp_path / "from-environment"),
        DANUBE_LISTEN__HOST="127.0.0.1",
    )
    said = "".join(broker.stdout.readline().decode() for _ in range(6))
    assert end(broker, signal.SIGTERM)[0] == 0
    assert "from-flag" in said
    assert "danube://127.0.0.1:" in said


# Producing and consuming.


def test_published_messages_are_consumed(url, topic):
    done = danube("produce", topic, "-m", "one", "-m", "two", "-n", "2", url=url)
    assert done.stdout.startswith(f"Published 4 messages to {topic}")
    done = danube("consume", topic, "-s", "me", "--from", "earliest", "-n4", url=url)
    assert done.stdout == "one\ntwo\n" * 2
    assert done.stderr == ""


def test_consumed_message_has_its_key_and_attributes(url, topic):
    summary = answer_of(
        *("produce", topic, "-m", "x", "-k", "user-7", "-a", "source=web"),
        *("-a", "kind=test", "--name", "web-1", "--compression", "zstd"),
        url=url,
    )
    assert (summary["messages"], summary["first_offset"]) == (1, 0)
    consume = ("consume", topic, "-s", "me", "--from", "earliest", "-n", "1")
    message = answer_of(*consume, url=url)
    assert message.pop("publish_time").endswith("Z")
    assert message == {
        "topic": topic,
        "offset": 0,
        "key": "user-7",
        "attributes": {"source": "web", "kind": "test"},
        "producer": "web-1",
        "attempt": 1,
        "payload": "x",
    }


def test_a_large_input_arrives_in_order(url, topic):
    lines = "".join(f"line {number}\n" for number in range(100_000))
    done = danube("produce", topic, url=url, stdin=lines)
    assert done.stdout.startswith("Published 100,000 messages")
    done = danube(
        *("consume", topic, "-s", "me", "--from", "earliest", "-n", "100000"), url=url
    )
    assert done.stdout == lines


def test_a_topic_is_copied_by_a_pipe(url, topic):
    payloads = [b"caf\xe9", b"", b"\x00\x01", "Łódź".encode(), b"the end"]
    stdin = b"".join(payload + b"\n" for payload in payloads)
    assert danube("produce", topic, url=url, stdin=stdin).returncode == 0
    consuming = subprocess.Popen(
        [*DANUBE, "consume", topic, "-s", "copy", "--from", "earliest", "-n", "5"],
        stdout=subprocess.PIPE,
        env=environment(url),
    )
    producing = subprocess.run(
        [*DANUBE, "produce", f"{topic}-copy"],
        stdin=consuming.stdout,
        capture_output=True,
        check=True,
        env=environment(url),
    )
    consuming.stdout.close()
    assert consuming.wait() == 0
    assert producing.stdout.startswith(b"Published 5 messages")
    lines = danube(
        *("consume", f"{topic}-copy", "-s", "me", "--from", "earliest"),
        *("-n", "5", "-o", "json"),
        url=url,
    ).stdout.splitlines()
    assert [json.loads(line).get("payload") for line in lines] == [
        None,
        "",
        "\x00\x01",
        "Łódź",
        "the end",
    ]


def test_lines_come_from_a_file_and_a_file_may_be_one_message(url, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo")
    assert danube("produce", topic, "-f", str(path), url=url).returncode == 0
    done = danube("produce", topic, "-f", str(path), "--whole-file", url=url)
    assert done.stdout == f"Published 1 message to {topic} at offset 2.\n"


def test_a_rate_is_not_exceeded(url, topic):
    done = answer_of(
        "produce", topic, "-m", "x", "-n", "30", "--rate", "100/s", url=url
    )
    assert done["messages"] == 30
    assert done["seconds"] >= 0.28


def test_a_message_that_is_too_large_is_refused_and_the_rest_counted(url, topic):
    stdin = b"small\n" + bytes(9_000_000)
    done = danube("produce", topic, url=url, stdin=stdin)
    assert done.returncode == 2
    assert "a message of 9000" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "x", "-f", "-"),
        ("-n", "2"),
        ("-m", "x", "-a", "no-value"),
        ("-m", "x", "--rate", "fast"),
    ],
)
def test_contradicting_options_are_a_usage_error(url, arguments):
    done = danube("produce", TOPIC, *arguments, url=url)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_unacknowledged_messages_are_redelivered(url, topic):
    published(url, topic, "one", "two")
    consume = ("consume", topic, "-s", "me", "--from", "earliest", "-n", "2")
    for options in (("--no-ack",), ()):
        assert danube(*consume, *options, url=url).stdout == "one\ntwo\n"
    assert cursor_of(topic, "me", url) == 2


def test_consumer_times_out_with_a_message(url, topic):
    published(url, topic, "one")
    consume = ("consume", topic, "-s", "me", "--from", "earliest", "--timeout", "200ms")
    done = danube(*consume, "-n", "2", url=url)
    assert (done.returncode, done.stdout) == (9, "one\n")
    assert done.stderr.startswith("error: received 1 message of 2")
    # Without a count no message is missing.
    assert danube(*consume, url=url).returncode == 0


def test_shared_subscription_divides_messages(url, topic):
    consume = ("consume", topic, "-s", "workers", "-t", "shared", "--from", "earliest")
    workers = [start_danube(*consume, "-n", "3", url=url) for _ in range(2)]
    published(url, topic, *"abcdef")
    got = [worker.communicate(timeout=120)[0].decode().split() for worker in workers]
    assert sorted(got[0] + got[1]) == list("abcdef")
    assert [len(each) for each in got] == [3, 3]


def test_a_second_consumer_of_an_exclusive_subscription_is_refused(url, topic):
    published(url, topic, "one")
    consume = ("consume", topic, "-s", "me", "--from", "earliest")
    first = start_danube(*consume, url=url)
    assert first.stdout.readline() == b"one\n"
    second = danube(*consume, url=url)
    assert second.returncode == 4
    assert "hint: " in second.stderr
    assert end(first, signal.SIGINT)[0] == 130


# Signals.


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_consumer_has_acknowledged_what_it_printed(
    url, topic, number, code
):
    published(url, topic, "one", "two")
    consumer = start_danube("consume", topic, "-s", "me", "--from", "earliest", url=url)
    before = [consumer.stdout.readline(), consumer.stdout.readline()]
    assert before == [b"one\n", b"two\n"]
    assert end(consumer, number) == (code, "", "")
    assert cursor_of(topic, "me", url) == 2


def test_an_interrupted_consumer_in_a_full_pipe_has_acknowledged_whole_lines(
    url, topic
):
    published(url, topic, *("x" * 1000 for _ in range(1000)))
    consumer = start_danube("consume", topic, "-s", "me", "--from", "earliest", url=url)
    first = consumer.stdout.readline()
    consumer.send_signal(signal.SIGINT)
    # The consumer prints more than a pipe holds, so it cannot have finished.
    assert consumer.wait(timeout=120) == 130
    _, rest, _ = end(consumer, signal.SIGINT)
    printed = first.decode() + rest
    assert cursor_of(topic, "me", url) == printed.count("\n") < 1000


def test_an_interrupted_producer_says_how_much_is_published(url, topic):
    producer = start_danube("produce", topic, url=url)
    producer.stdin.write(b"one\ntwo\nthr")
    producer.stdin.flush()
    consume = ("consume", topic, "-s", "me", "--from", "earliest", "-n", "2")
    assert danube(*consume, url=url).stdout == "one\ntwo\n"
    code, said, errors = end(producer, signal.SIGINT)
    assert (code, errors) == (130, "")
    assert said.startswith("Published 2 messages")


def test_consumer_can_be_interrupted_after_its_broker_has_stopped(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        published(broker.url, TOPIC, "one")
        consumer = start_danube(
            *("consume", TOPIC, "-s", "me", "--from", "earliest"), url=broker.url
        )
        assert consumer.stdout.readline() == b"one\n"
        broker.kill()
        code, _, said = end(consumer, signal.SIGINT)
        assert code == 9
        assert said.startswith("error: the broker cannot be reached")
        broker.start()


def test_consumer_can_be_interrupted_while_its_broker_hangs(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        published(broker.url, TOPIC, "one")
        consumer = start_danube(
            *("consume", TOPIC, "-s", "me", "--from", "earliest"), url=broker.url
        )
        assert consumer.stdout.readline() == b"one\n"
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            code, _, said = end(consumer, signal.SIGINT)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        # Its acknowledgement may have been on disk before the broker was stopped.
        assert code in (9, 130)
        assert code == 130 or said.startswith("error: the broker cannot be reached")


def test_consumer_ends_when_its_reader_closes_the_pipe(url, topic):
    published(url, topic, *range(100_000))
    consumer = start_danube("consume", topic, "-s", "me", "--from", "earliest", url=url)
    assert consumer.stdout.readline() == b"0\n"
    consumer.stdout.close()
    assert consumer.wait(timeout=120) == 128 + signal.SIGPIPE
    assert consumer.stderr.read() == b""
    consumer.stderr.close()
    consumer.stdin.close()


# Topics and subscriptions.


def test_topic_is_created_described_and_deleted(url):
    topic = "/default/life"
    create = ("topics", "create", topic, "--retention-age", "7d")
    created = answer_of(*create, "--retention-bytes", "1GiB", url=url)
    assert created["retention"] == created["policy"]["retention"]
    assert created["retention"] == {
        "age_s": 604_800,
        "bytes_max": 2**30,
        "drops_acknowledged": False,
    }

    again = danube(*create, url=url)
    assert again.returncode == 5
    same = (*create, "--retention-bytes", "1GiB", "--if-not-exists")
    assert danube(*same, url=url).returncode == 0

    published(url, topic, "one")
    assert topic in danube("topics", "list", "--names", url=url).stdout.splitlines()
    assert topic in [each["topic"] for each in answer_of("topics", "list", url=url)]
    assert topic in danube("topics", "list", url=url).stdout
    described = answer_of("topics", "describe", topic, "--segments", url=url)
    assert (described["end_offset"], described["segments"]) == (1, [])
    assert "up to 7d old" in danube("topics", "describe", topic, url=url).stdout

    trim = ("topics", "trim", topic, "--before")
    refused = danube(*trim, "latest", url=url)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert danube(*trim, "2", "--yes", url=url).returncode == 2
    (drops,) = answer_of(*trim, "1", "--yes", url=url)
    assert (drops["topic"], drops["base_offset"]) == (topic, 1)
    trimmed = danube(*trim, "latest", "--yes", url=url)
    assert f"{topic} begins at offset 1." in trimmed.stdout

    refused = danube("topics", "delete", topic, url=url)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert danube("topics", "delete", topic, "--yes", url=url).returncode == 0
    assert danube("topics", "describe", topic, url=url).returncode == 3


def test_subscription_is_created_described_and_deleted(url, topic):
    published(url, topic, "one", "two")
    named = (topic, "-s", "billing")
    created = answer_of(
        *("subscriptions", "create", *named, "--from", "earliest", "-t", "shared"),
        url=url,
    )
    assert (created["type"], created["cursor"], created["backlog"]) == ("shared", 0, 2)
    assert danube("subscriptions", "create", *named, url=url).returncode == 5
    (listed,) = answer_of("subscriptions", "list", topic, url=url)
    assert listed["subscription"] == "billing"
    assert "billing" in danube("subscriptions", "list", topic, url=url).stdout
    described = danube("subscriptions", "describe", *named, url=url).stdout
    assert "Backlog" in described
    delete = ("subscriptions", "delete", *named, "--yes")
    assert answer_of(*delete, url=url)["deleted"] is True
    assert danube("subscriptions", "describe", *named, url=url).returncode == 3


def test_a_non_reliable_topic_is_created_by_its_producer(url):
    topic = "/default/ticks"
    produce = ("produce", topic, "-m", "x")
    assert danube(*produce, "--non-reliable", url=url).returncode == 0
    described = answer_of("topics", "describe", topic, url=url)
    assert described["policy"]["dispatch"] == "non_reliable"
    assert danube(*produce, "--reliable", url=url).returncode == 5
    assert danube(*produce, url=url).returncode == 0


def test_the_journal_of_a_running_broker_can_be_inspected(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        published(broker.url, TOPIC, "one", "two")
        (path,) = (tmp_path / "journal").iterdir()
        done = danube("inspect", "journal", str(path))
    assert done.returncode == 0
    assert TOPIC in done.stdout
    assert "Whole: " in done.stdout


# Errors.


def test_an_unknown_topic_is_an_error_with_a_hint(url):
    done = danube("read", "/default/nothing", url=url)
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert "/default/nothing" in error
    assert "danube topics list" in hint


def test_invalid_topic_name_is_explained(url):
    done = danube("topics", "create", "orders", url=url)
    assert done.returncode == 2
    assert "should be: /namespace_name/topic_name" in done.stderr


def test_missing_broker_is_an_error_with_a_hint():
    done = danube("topics", "list", "--url", "danube://127.0.0.1:1")
    assert done.returncode == 8
    assert "danube broker" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_a_traceback(url):
    done = danube("--debug", "topics", "describe", "/default/nothing", url=url)
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert "error: " in done.stderr


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from pydanube_cli.main import main
sys.argv[0] = "danube"
main()
"""


def test_a_pipeline_without_spark_is_refused_in_one_sentence(tmp_path):
    def without_spark(*arguments):
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )

    assert without_spark("pipeline", "init", ".").returncode == 0
    for action in ("run", "validate"):
        done = without_spark("pipeline", action, "pipeline.yaml")
        assert done.stderr == (
            "error: this command needs pyspark, which is not installed: pip install "
            "'pydanube[spark]', or 'pydanube[pipelines]' for all sinks\n"
        )
        assert done.returncode == 2


def test_lag_is_listed_by_pattern_and_fails_above_a_limit(url, topic):
    create = ("subscriptions", "create", topic, "-s", "slow", "--from", "earliest")
    assert danube(*create, url=url).returncode == 0
    published(url, topic, "one", "two")
    [lag] = answer_of("lag", f"{topic[:-1]}?", url=url)
    assert (lag["topic"], lag["subscription"], lag["lag"]) == (topic, "slow", 2)
    assert lag["age_s"] >= 0
    assert danube("lag", topic, "--max-lag", "2", url=url).returncode == 0
    late = danube("lag", topic, "--max-lag", "1", url=url)
    assert late.returncode == 1
    assert f"Over the limit: slow of {topic}" in late.stdout
    assert danube("lag", "/default/no-such-*", url=url).returncode == 3
