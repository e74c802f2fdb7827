"""Broker processes that serve one cluster, over a service and a shared directory."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import pydanube
import pydanube.sync
from pydanube.aio.tasks import gather
from pydanube_broker.storage.journal.state import SKIPPED_OFFSETS
from support.drivers.commands import danube
from support.drivers.running import received
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.danube_client import DanubeClient, encoded, payloads
from support.servers.metadata_services import SERVICES, MetadataService
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPICS = [f"/default/t{number}" for number in range(6)]
SHARDS = 8
END = b"end"
SESSION_LOST = 7
"""The exit code of a broker whose session is over."""


@pytest.fixture(params=SERVICES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the settings of all brokers of a new cluster."""
    service: MetadataService = request.param
    member = request.getfixturevalue(service.kind)
    return cluster_settings(
        service.endpoint(member.port), tmp_path, kind=service.kind, shards=SHARDS
    )


def owner_of(topic: str, *brokers: BrokerProcess) -> BrokerProcess:
    """Return the broker that serves a topic, as soon as there is one."""
    with httpx.Client() as http:
        while True:
            for broker in brokers:
                url = f"{broker.http_url}/api/v1/describe_topic"
                answer = http.get(url, params={"topic": topic})
                if answer.status_code == 200:
                    return broker
                assert answer.status_code == 503, answer.text
            time.sleep(0.05)


def problems_of(broker: BrokerProcess) -> str:
    """Return what a broker says about problems, as text."""
    return httpx.get(f"{broker.http_url}/readyz").text


async def publish(topic: str, payload: bytes, *brokers: BrokerProcess) -> BrokerProcess:
    """Publish a message at the broker that serves the topic; return the broker."""
    owner = await asyncio.to_thread(owner_of, topic, *brokers)
    async with (
        pydanube.connect(owner.url) as client,
        client.producer(topic) as producer,
    ):
        await producer.send(payload)
    return owner


@pytest.mark.soak
async def test_a_killed_broker_is_replaced_and_loses_nothing(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        async with pydanube.connect(first.url) as client:
            for topic in TOPICS:
                await client.topics.create(topic)
        owners = {
            topic: await publish(topic, topic.encode(), first, second)
            for topic in TOPICS
        }
        first.kill()
        shutil.rmtree(first.data_dir)
        for topic in TOPICS:
            await publish(topic, b"after", second)
        async with pydanube.connect(second.url) as client:
            for topic in TOPICS:
                async with client.consumer(
                    topic, subscription="s", start="earliest"
                ) as consumer:
                    assert await received(consumer, 2) == [topic.encode(), b"after"]
        assert first in owners.values()
        # A broker that stops hands everything over to a new run of the first one.
        first.start()
        assert second.stop() == 0
        for topic in TOPICS:
            await publish(topic, b"again", first)
        async with pydanube.connect(first.url) as client:
            for topic in TOPICS:
                payloads = [topic.encode(), b"after", b"again"]
                async with client.consumer(topic, subscription="s") as consumer:
                    assert await received(consumer, 3) == payloads
        assert first.stop() == 0


async def test_dead_letters_of_all_brokers_reach_their_topic(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b"),
    ):
        async with pydanube.connect(first.url) as client:
            await client.topics.create("/default/dead")
            for topic in TOPICS:
                await client.topics.create(topic)
                policy = pydanube.FailurePolicy(
                    redeliveries_max=0,
                    poison=pydanube.PoisonPolicy.DEAD_LETTER,
                    dead_letter_topic="/default/dead",
                )
                await client.subscriptions.configure(topic, "s", failure_policy=policy)
                async with (
                    client.consumer(
                        topic, subscription="s", start="earliest"
                    ) as consumer,
                    client.producer(topic) as producer,
                ):
                    await producer.send(topic.encode())
                    await consumer.nack(await consumer.receive())
            async with client.consumer(
                "/default/dead", subscription="all", start="earliest"
            ) as consumer:
                found = await received(consumer, len(TOPICS))
            assert sorted(found) == [topic.encode() for topic in TOPICS]


def test_a_broker_is_drained_and_activated_from_the_command_line(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        brokers = first, second
        with pydanube.sync.connect(first.url) as client:
            for topic in TOPICS:
                client.topics.create(topic)
        drained = danube("brokers", "drain", "a", "--reason", "test", url=second.url)
        assert drained.returncode == 0, drained.stderr
        assert {owner_of(topic, *brokers) for topic in TOPICS} == {second}
        for command in ("list",), ("describe", TOPICS[0]):
            text = danube("topics", *command, url=first.url).stdout
            assert "Broker" in text
            topic = danube("topics", *command, "--format", "json", url=first.url)
            described = json.loads(topic.stdout)
            described = described[0] if command == ("list",) else described
            assert described["broker_id"] == "b"
            assert 0 <= described["shard"] < SHARDS
        of_b = danube("brokers", "describe", "b", "--format", "json", url=first.url)
        [of_b] = json.loads(of_b.stdout)
        assert of_b["topic_count"] == len(TOPICS)
        assert {each["topic"] for each in of_b["topics"]} == {*TOPICS}
        assert described["shard"] in {each["shard"] for each in of_b["topics"]}
        shown = danube("cluster", "status", "--format", "json", url=first.url)
        assert shown.returncode == 0, shown.stdout
        described = {
            each["broker_id"]: (each["mode"], each["shard_count"])
            for each in json.loads(shown.stdout)["brokers"]
        }
        assert described == {"a": ("drained", 0), "b": ("active", SHARDS)}
        refused = danube("brokers", "drain", "b", url=first.url)
        assert refused.returncode == 2
        assert "b is the only active broker" in refused.stderr
        assert danube("brokers", "undrain", "a", url=first.url).returncode == 0
        text = danube("cluster", "status", url=first.url).stdout
        assert first.url in text
        assert second.url in text
        listed = json.loads(
            danube("brokers", "list", "--format", "json", url=first.url).stdout
        )
        assert [each["broker_id"] for each in listed] == ["a", "b"]
        described = danube("brokers", "describe", "b", url=first.url)
        assert second.url in described.stdout
        listed = danube("brokers", "list", url=first.url).stdout
        assert "Topics" in listed
        unknown = danube("brokers", "describe", "x", url=first.url)
        assert unknown.returncode == 2
        assert "it has a, b" in unknown.stderr


@pytest.mark.soak
def test_a_broker_that_does_not_come_back_is_forgotten(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        drained = danube("brokers", "drain", "a", url=second.url)
        assert drained.returncode == 0, drained.stderr
        refused = danube("brokers", "forget", "a", url=second.url)
        assert refused.returncode == 2
        assert "a runs: stop it first" in refused.stderr
        assert first.stop() == 0
        listed = danube("brokers", "list", url=second.url).stdout
        assert "drained, stopped" in listed
        forgotten = danube("brokers", "forget", "a", url=second.url)
        assert forgotten.returncode == 0, forgotten.stderr
        assert "a is forgotten, and nothing is lost" in forgotten.stdout
        listed = json.loads(
            danube("brokers", "list", "--format", "json", url=second.url).stdout
        )
        assert [each["broker_id"] for each in listed] == ["b"]
        # A broker that was not drained is not listed, and is forgotten already.
        again = danube("brokers", "forget", "a", url=second.url)
        assert again.returncode == 0, again.stderr
        assert "there is nothing to forget" in again.stdout


@pytest.mark.soak
def test_topics_go_on_without_a_lost_journal_only_by_request(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    topic = TOPICS[0]
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        assert danube("topics", "create", topic, url=first.url).returncode == 0
        owner = pydanube.run(publish(topic, b"uploaded", first, second))
        other, name = (second, "a") if owner is first else (first, "b")
        uploaded = danube("storage", "upload", url=owner.url)
        assert uploaded.returncode == 0, uploaded.stderr
        pydanube.run(publish(topic, b"lost", owner))
        owner.kill()
        shutil.rmtree(tmp_path / "remote" / ".journal")
        forget = ("brokers", "forget", name, "--accept-loss", "--yes")
        while True:
            done = danube(*forget, "--format", "json", url=other.url)
            assert done.returncode == 0, done.stderr
            if topic in json.loads(done.stdout)["topics"]:
                break
        pydanube.run(publish(topic, b"next", other))
        with pydanube.sync.connect(other.url) as client:
            facts = client.topics.describe(topic)
        assert facts.end_offset == 1 + SKIPPED_OFFSETS + 1


@pytest.mark.soak
@pytest.mark.parametrize("is_restored", [True, False], ids=["restored", "given up"])
def test_a_shard_waits_for_a_lost_object_in_the_middle_of_a_journal(
    tmp_path: Path, settings: dict[str, Any], is_restored: bool
) -> None:
    topic = TOPICS[0]
    settings["storage"] |= {"seal_age_s": 3600.0}
    payloads = [b"%d" % number for number in range(20)]
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        assert danube("topics", "create", topic, url=first.url).returncode == 0
        for payload in payloads:
            owner = pydanube.run(publish(topic, payload, first, second))
        other, name = (second, "a") if owner is first else (first, "b")
        owner.kill()
        # Each message was acknowledged before the next one, in a group of its own.
        journals = (tmp_path / "remote" / ".journal").iterdir()
        groups = max((sorted(each.iterdir()) for each in journals), key=len)
        lost = groups[len(groups) // 2]
        kept = lost.rename(tmp_path / "kept")
        while "the store has lost it" not in (problems := problems_of(other)):
            time.sleep(0.05)
        assert f"{lost.parent.name}/{lost.name}: expected a group" in problems
        assert not lost.exists()
        if is_restored:
            kept.rename(lost)
            assert owner_of(topic, other) is other
            with pydanube.sync.connect(other.url) as client:
                assert client.topics.describe(topic).end_offset == len(payloads)
            return
        forget = ("brokers", "forget", name, "--accept-loss", "--yes")
        done = danube(*forget, "--format", "json", url=other.url)
        assert done.returncode == 0, done.stderr
        assert topic in json.loads(done.stdout)["topics"]
        pydanube.run(publish(topic, b"next", other))
        with pydanube.sync.connect(other.url) as client:
            facts = client.topics.describe(topic)
        assert facts.end_offset == SKIPPED_OFFSETS + 1


def test_a_topic_is_moved_and_the_load_is_balanced_from_the_command_line(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        brokers = first, second
        with pydanube.sync.connect(first.url) as client:
            for topic in TOPICS:
                client.topics.create(topic)
        for target, broker in (("a", first), ("b", second), ("b", second)):
            moved = danube("topics", "move", TOPICS[0], "--to", target, url=first.url)
            assert moved.returncode == 0, moved.stderr
            assert TOPICS[0] in moved.stdout
            while owner_of(TOPICS[0], *brokers) is not broker:
                pass
        refused = danube("topics", "move", TOPICS[0], "--to", "x", url=first.url)
        assert refused.returncode == 2
        assert "these run: a, b" in refused.stderr
        shown = danube("brokers", "rebalance", "--dry-run", url=first.url)
        assert shown.returncode == 0, shown.stderr
        began = danube("brokers", "rebalance", url=first.url)
        assert began.returncode == 0, began.stderr
        while True:
            planned = danube(
                *("brokers", "rebalance", "--dry-run", "--format", "json"),
                url=second.url,
            )
            if json.loads(planned.stdout) == []:
                break


class Flow:
    """Publishes 0, 1, 2, … to a topic, one after the other, and receives them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acked: list[bytes] = []
        self.received: list[bytes] = []
        self.is_over = False
        self._more = asyncio.Event()

    async def publish(self, client: pydanube.Client) -> None:
        async with client.producer(self.topic) as producer:
            while not self.is_over:
                payload = b"%d" % len(self.acked)
                await producer.send(payload)
                self.acked.append(payload)
                self._more.set()
            await producer.send(END)

    async def receive(self, client: pydanube.Client) -> None:
        async with client.consumer(
            self.topic, subscription="s", start="earliest"
        ) as consumer:
            async for message in consumer:
                await consumer.ack(message)
                if message.payload == END:
                    break
                self.received.append(message.payload)

    async def check(self, client: pydanube.Client) -> None:
        """Check that all is there once, and that what came twice kept its order."""
        # What was acknowledged shortly before a failure may come again.
        assert list(dict.fromkeys(self.received)) == self.acked
        batches = [batch async for batch in client.read(self.topic)]
        payloads = [each for batch in batches for each in batch.payloads]
        assert payloads == [*self.acked, END]

    async def acknowledged(self, count: int) -> None:
        """Wait until *count* more messages are acknowledged."""
        end = len(self.acked) + count
        while len(self.acked) < end:
            self._more.clear()
            await self._more.wait()


@pytest.mark.soak
async def test_a_client_follows_its_topics_when_brokers_are_killed(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    flows = [Flow(topic) for topic in TOPICS]
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
        cluster_broker(tmp_path, settings, "c") as third,
    ):
        url = f"{first.url},{second.url}"
        async with (
            pydanube.connect(url) as client,
            pydanube.connect(third.url) as other,
        ):
            for topic in TOPICS:
                await client.topics.create(topic)
            async with asyncio.TaskGroup() as tasks:
                for flow in flows:
                    tasks.create_task(flow.publish(client))
                    tasks.create_task(flow.receive(other))
                await gather(flow.acknowledged(10) for flow in flows)
                # The first broker has all shards.  The others share them now.
                await asyncio.to_thread(first.kill)
                shutil.rmtree(first.data_dir)
                await gather(flow.acknowledged(10) for flow in flows)
                assert {owner_of(each, second, third) for each in TOPICS} == {
                    second,
                    third,
                }
                # The client knows the third one from its answers.
                await asyncio.to_thread(second.kill)
                await gather(flow.acknowledged(10) for flow in flows)
                for flow in flows:
                    flow.is_over = True
            for flow in flows:
                await flow.check(client)
        assert third.stop() == 0


@pytest.mark.soak
async def test_a_rolling_restart_under_load_causes_no_errors_at_clients(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    flows = [Flow(topic) for topic in TOPICS]
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
        cluster_broker(tmp_path, settings, "c") as third,
    ):
        brokers = first, second, third
        url = ",".join(each.url for each in brokers)
        async with pydanube.connect(url) as client:
            for topic in TOPICS:
                await client.topics.create(topic)
            # An error of a producer or a consumer would end the group.
            async with asyncio.TaskGroup() as tasks:
                for flow in flows:
                    tasks.create_task(flow.publish(client))
                    tasks.create_task(flow.receive(client))
                for broker in brokers:
                    await gather(flow.acknowledged(10) for flow in flows)
                    assert await asyncio.to_thread(broker.stop) == 0
                    await asyncio.to_thread(broker.start)
                await gather(flow.acknowledged(10) for flow in flows)
                for flow in flows:
                    flow.is_over = True
            for flow in flows:
                await flow.check(client)


async def test_requests_leave_a_broker_that_is_suspended(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        async with pydanube.connect(
            f"{first.url},{second.url}", connect_timeout_s=3, retry_s=10
        ) as client:
            await client.topics.create(TOPICS[0], partitions=2)
            os.kill(first.pid, signal.SIGSTOP)
            # The idle timeout is longer than the client repeats a request.
            assert len(await client.topics.partitions(TOPICS[0])) == 2
            assert len(await client.topics.list()) == 2
            first.kill()


@pytest.mark.soak
async def test_producers_and_consumers_leave_a_broker_that_is_suspended(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    # The connection itself would only be given up after two minutes.
    settings["listen"] = {"idle_timeout_s": 120}
    flow = Flow(TOPICS[0])
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
    ):
        async with pydanube.connect(f"{first.url},{second.url}") as client:
            await client.topics.create(flow.topic)
            await client.cluster.move_topic(flow.topic, "a")
            async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
                tasks.create_task(flow.publish(client))
                tasks.create_task(flow.receive(client))
                await flow.acknowledged(10)
                await asyncio.to_thread(owner_of, flow.topic, first)
                os.kill(first.pid, signal.SIGSTOP)
                # Longer than its lease.
                await flow.acknowledged(10)
                os.kill(first.pid, signal.SIGCONT)
                # It has lost its session, and ends.
                assert await asyncio.to_thread(first.wait) == SESSION_LOST
                await flow.acknowledged(10)
                flow.is_over = True
            await flow.check(client)


@pytest.mark.soak
def test_a_client_of_danube_uses_topics_of_different_brokers(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
        cluster_broker(tmp_path, settings, "c") as third,
        DanubeClient(second.grpc_url) as client,
    ):
        with pydanube.sync.connect(first.url) as native:
            for topic in TOPICS:
                native.topics.create(topic)
        # It has all shards.  The others share them when it is gone.
        assert first.stop() == 0
        owners = {owner_of(topic, second, third) for topic in TOPICS}
        assert owners == {second, third}
        for topic in TOPICS:
            name = topic.rpartition("/")[2]
            client.create_producer(name=name, topic=topic)
            client.subscribe(name=name, topic=topic, subscription="s", type="EXCLUSIVE")
            for number in range(3):
                client.send(producer=name, payload=encoded(f"{name} {number}"))
            messages = client.receive(consumer=name, count=3)
            assert payloads(messages) == [f"{name} {n}".encode() for n in range(3)]
        # The client follows the topics that move.
        drained = danube("brokers", "drain", "b", url=third.url)
        assert drained.returncode == 0, drained.stderr
        for topic in TOPICS:
            name = topic.rpartition("/")[2]
            client.send(producer=name, payload=encoded("after"))
            assert payloads(client.receive(consumer=name, count=1)) == [b"after"]


def test_standalone_brokers_and_clusters_refuse_the_metadata_of_each_other(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with cluster_broker(tmp_path, settings, "a") as broker:
        assert broker.stop() == 0
    alone = settings | {"cluster": {"enabled": False}}
    path = tmp_path / "alone.yaml"
    path.write_text(json.dumps(alone))
    refused = BrokerProcess(
        tmp_path / "alone", "--config", str(path), log_file=tmp_path / "alone.log"
    )
    refused.spawn()
    assert refused.wait() != 0
    log = refused.log_file.read_text() if refused.log_file else ""
    assert "set cluster.enabled, or choose another name" in log


@pytest.mark.parametrize("is_new", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_restored_backup_is_not_served_by_a_cluster(
    tmp_path: Path, settings: dict[str, Any], is_new: bool
) -> None:
    path = tmp_path / "alone.yaml"
    stores = {"backups": {"url": f"fs://{tmp_path}/backups"}}
    path.write_text(json.dumps({"stores": stores}))
    with BrokerProcess(tmp_path / "data", "--config", str(path)) as alone:
        assert (
            danube("produce", "/default/t", "-m", "kept", url=alone.url).returncode == 0
        )
        assert danube("backup", "create", "backups", url=alone.url).returncode == 0
    if not is_new:
        with cluster_broker(tmp_path, settings, "b") as broker:
            assert broker.stop() == 0
    restored = tmp_path / "a"
    store = f"fs://{tmp_path}/backups"
    done = danube("backup", "restore", store, "--data-dir", str(restored))
    assert done.returncode == 0, done.stderr
    refused = cluster_broker(tmp_path, settings, "a")
    refused.spawn()
    assert refused.wait() != 0
    log = refused.log_file.read_text() if refused.log_file else ""
    assert "Traceback" not in log
    what = "has no cluster id, but there are" if is_new else "belongs to cluster"
    assert what in log
    # Its messages are still there for a broker that is alone.
    with BrokerProcess(restored) as alone:
        assert "kept" in danube("read", "/default/t", url=alone.url).stdout


@pytest.mark.soak
def test_a_second_broker_with_the_same_name_does_not_start(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    metadata = settings["metadata"]
    metadata[metadata["kind"]]["session_ttl_s"] = 2
    with cluster_broker(tmp_path, settings, "a") as broker:
        second = cluster_broker(tmp_path, settings, "a")
        second.data_dir = tmp_path / "second"
        second.log_file = tmp_path / "second.log"
        second.spawn()
        assert second.wait() != 0
        assert "another process is the broker 'a'" in second.log_file.read_text()
        assert broker.stop() == 0
