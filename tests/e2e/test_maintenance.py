"""Maintenance of topics that are in use, through real processes."""

import json
import time
from itertools import count
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from pydanube import sync
from pydanube.model.errors import NotFound, TopicHeld
from pydanube_cli.main import app
from pydanube_spark.jobs import SparkRunner, ThreadRunner
from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain

SEAL_BYTES = 64 * 1024
"""As the broker of these tests has it."""

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

NAMES = (f"/default/upkeep-{number}" for number in count())
BIG = b"x" * 300
"""Small, so that a few hundred messages make a segment."""


def publish(client, topic, messages):
    """Publish (key, payload) pairs in small batches."""
    with client.producer(topic) as producer:
        for at in range(0, len(messages), 50):
            for key, payload in messages[at : at + 50]:
                producer.send_nowait(payload, key=key)
            producer.flush()


def fill(client, topic, messages):
    """Publish what becomes several segments."""
    middle = len(messages) // 2
    for half in (messages[:middle], messages[middle:]):
        publish(client, topic, half)
        wait_until_sealed(client, topic)


def wait_until_sealed(client, topic):
    """Wait until nothing more will be sealed for a long time."""
    while client.topics.describe(topic).tail_bytes >= SEAL_BYTES:
        time.sleep(0.01)


def random_messages(seed, length=1500, keys=40):
    rng = Random(seed)
    return [
        (
            None if rng.random() < 0.05 else f"k{rng.randrange(keys)}",
            b"" if rng.random() < 0.05 else b"%d:" % at + BIG,
        )
        for at in range(length)
    ]


def stored(client, topic, **where):
    """Every message by offset: key and payload."""
    return {
        message.offset: (message.key, message.payload)
        for batch in client.read(topic, **where)
        for message in batch
    }


def expected_of(before, sealed):
    """The messages of *before* that compaction of offsets below *sealed* keeps."""
    last = {key: at for at, (key, _) in before.items() if key and at < sealed}
    return {
        at: (key, payload)
        for at, (key, payload) in before.items()
        if at >= sealed or key is None or last[key] == at
    }


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_small_segments_become_large_ones_and_every_message_stays(client, broker_url):
    topic = next(NAMES)
    fill(client, topic, random_messages(1))
    before = stored(client, topic)
    result = run(
        *("maintenance", "run", topic, "--merge", "--verify"),
        *("--url", broker_url, "--format", "json"),
    )
    assert result.exit_code == 0, result.output
    (facts,) = json.loads(result.stdout)
    assert facts["result"] == "done"
    assert facts["messages_removed"] == 0
    assert facts["segments_after"] < facts["segments_before"]
    assert stored(client, topic) == before


@pytest.mark.parametrize(
    "runner", ["threads", pytest.param("spark", marks=pytest.mark.soak)]
)
def test_compaction_keeps_the_last_message_of_each_key(
    client, broker_url, request, runner
):
    topic = next(NAMES)
    fill(client, topic, random_messages(2))
    before = stored(client, topic)
    sealed = client.storage.segments(topic).sealed_offset
    by = (
        ThreadRunner(2)
        if runner == "threads"
        else SparkRunner(request.getfixturevalue("spark"))
    )
    work = MaintenanceOptions(is_merging=True, is_compacting=True, is_verifying=True)
    report = maintain(client, topic, work, by, tell=lambda _: None)
    assert report.error is None
    assert report.problems == []
    after = stored(client, topic)
    assert after == expected_of(before, sealed)
    assert len(before) - len(after) == report.messages_removed
    described = client.topics.describe(topic)
    assert described.message_count == len(after)
    # A second run has nothing to do except for newer segments.
    verified = maintain(
        client, topic, MaintenanceOptions(is_verifying=True), by, tell=print
    )
    assert (verified.problems, verified.segments_without_checksum) == ([], 0)
    if runner == "spark":
        spark = request.getfixturevalue("spark")
        read = spark.read.format("danube").option("url", broker_url)
        rows = (
            read.option("subscribe", topic).load().select("offset", "payload").collect()
        )
        assert {row.offset: bytes(row.payload) for row in rows} == {
            offset: payload for offset, (_, payload) in after.items()
        }


def test_held_topic_does_not_change(client, broker_url):
    topic = next(NAMES)
    fill(client, topic, random_messages(3, length=800))
    held = run(
        *("topics", "hold", topic, "--name", "lake.orders", "--reason", "a table"),
        *("--url", broker_url),
    )
    assert held.exit_code == 0, held.output
    assert (
        "lake.orders: a table"
        in run("topics", "describe", topic, "--url", broker_url).stdout
    )
    before = client.storage.segments(topic).segments
    work = MaintenanceOptions(is_merging=True)
    report = maintain(client, topic, work, ThreadRunner(1), tell=lambda _: None)
    assert isinstance(report.error, TopicHeld)
    assert client.storage.segments(topic).segments[: len(before)] == before
    with pytest.raises(TopicHeld):
        client.topics.delete(topic)
    released = run(
        "topics", "release", topic, "--name", "lake.orders", "--url", broker_url
    )
    assert released.exit_code == 0, released.output
    with pytest.raises(NotFound):
        client.topics.release(topic, "lake.orders")
    client.topics.delete(topic)


@pytest.mark.parametrize("type_", ["exclusive", "shared", "failover", "key_shared"])
def test_consumer_gets_every_remaining_message_once(broker_url, client, type_):
    topic = next(NAMES)
    fill(client, topic, random_messages(4))
    before = stored(client, topic)
    with (
        sync.connect(broker_url) as reader,
        reader.consumer(
            topic, subscription="s", type=type_, start="earliest", prefetch_messages=64
        ) as consumer,
    ):
        got = []

        def take():
            message = consumer.receive(timeout_s=60)
            consumer.ack(message)
            got.append(message.offset)

        for _ in range(200):
            take()
        work = MaintenanceOptions(is_merging=True, is_compacting=True)
        report = maintain(client, topic, work, ThreadRunner(2), tell=lambda _: None)
        assert report.error is None
        after = stored(client, topic)
        while not set(after) <= set(got):
            take()
        assert len(got) == len(set(got)), "nothing twice"
        assert set(got) <= set(before)
    described = client.subscriptions.describe(topic, "s")
    assert described.backlog == 0
    assert described.in_flight == 0


def test_consume_and_danube_tools_read_a_compacted_topic(client, broker_url, capfd):
    topic = next(NAMES)
    fill(client, topic, random_messages(6, length=1000, keys=5))
    work = MaintenanceOptions(is_compacting=True, is_merging=True)
    report = maintain(client, topic, work, ThreadRunner(2), tell=lambda _: None)
    assert report.error is None
    after = stored(client, topic)
    result = run(
        *("consume", topic, "-s", "me", "--from", "earliest", "-n", str(len(after))),
        *("--url", broker_url, "--output", "json"),
    )
    assert result.exit_code == 0, result.output
    lines = capfd.readouterr().out.splitlines()
    offsets = [json.loads(line)["offset"] for line in lines]
    assert offsets == sorted(after)
    planned = run(
        *("maintenance", "run", topic, "--compact-keys", "--plan"),
        *("--url", broker_url),
    )
    assert "planned" in planned.stdout
    state = run("maintenance", "status", topic, "--url", broker_url, "--format", "json")
    (facts,) = json.loads(state.stdout)
    assert facts["removed"] == report.messages_removed
    assert facts["without_checksum"] == 0
    table = run("maintenance", "status", topic, "--url", broker_url)
    assert topic in table.stdout


def test_partitioned_topic_is_maintained_by_its_name(client, broker_url):
    topic = next(NAMES)
    client.topics.create(topic, partitions=2)
    publish(client, topic, random_messages(7, length=600))
    before = {name: stored(client, name) for name in client.topics.partitions(topic)}
    result = run(
        *("maintenance", "run", topic, "--merge", "--url", broker_url),
        *("--format", "json"),
    )
    assert result.exit_code == 0, result.output
    assert [each["topic"] for each in json.loads(result.stdout)] == list(before)
    assert {name: stored(client, name) for name in before} == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--merge",), 2, "name topics"),
        (("/default/upkeep-none", "--merge"), 3, "Unable to find"),
        (("/default/upkeep-none",), 2, "nothing to do"),
        (("/default/upkeep-none", "--all", "--merge"), 2, "name topics"),
    ],
)
def test_wrong_arguments_are_refused(broker_url, arguments, code, text):
    result = run("maintenance", "run", *arguments, "--url", broker_url)
    assert result.exit_code == code
    assert text in result.stderr


def test_damage_has_its_exit_code(client, broker_url):
    topic = next(NAMES)
    fill(client, topic, random_messages(8, length=800))
    path = Path(client.storage.segments(topic).segments[0].url.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    result = run(
        *("maintenance", "run", topic, "--verify", "--merge", "--url", broker_url),
    )
    assert result.exit_code == 11
    assert "checksum" in result.stderr
    assert "damaged" in result.stdout
