"""A broker with several processes: `danube broker --processes N`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest

import pydanube
from pydanube.model.errors import PermissionDenied, QuotaExceeded
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from support.drivers.running import received
from support.fakes.guarded_clusters import eventually
from support.servers.certificates import write_certificates
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

TOPICS = [f"/default/t{number}" for number in range(8)]


def is_running(process: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(
        json.dumps(
            {
                "storage": {"seal_age_s": 1.0, "seal_interval_s": 0.2},
                "cluster": {"shards": 8},
                "stores": {"backups": {"url": f"fs://{tmp_path}/backups"}},
            }
        )
    )
    return path


def several(tmp_path: Path, settings: Path, count: int) -> BrokerProcess:
    return BrokerProcess(
        tmp_path / "data",
        "--processes",
        str(count),
        "--config",
        str(settings),
        log_file=tmp_path / "broker.log",
    )


async def test_killed_process_loses_nothing_that_was_acknowledged(
    tmp_path: Path, settings: Path
) -> None:
    acknowledged: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    enough = asyncio.Event()

    async def publish(client: pydanube.Client, topic: str) -> None:
        async with client.producer(topic) as producer:
            for number in range(1_000_000):
                if enough.is_set():
                    return
                payload = f"{topic} {number}".encode()
                await producer.send(payload)
                acknowledged[topic].append(payload)

    async def grown(by: int) -> None:
        """Return when each topic has acknowledged so many messages more."""
        wanted = {topic: len(sent) + by for topic, sent in acknowledged.items()}
        while any(  # noqa: ASYNC110  # The publishers only append.
            len(acknowledged[topic]) < count for topic, count in wanted.items()
        ):
            await asyncio.sleep(0.01)

    with several(tmp_path, settings, 2) as broker:
        async with pydanube.connect(broker.url) as client:
            async with asyncio.TaskGroup() as tasks:
                for topic in TOPICS:
                    tasks.create_task(publish(client, topic))
                await grown(20)
                for victim in broker.children():
                    os.kill(victim, signal.SIGKILL)
                    # All topics go on, also those of the killed process.
                    await grown(20)
                enough.set()
            for topic in TOPICS:
                async with client.consumer(
                    topic, subscription="s", start="earliest"
                ) as consumer:
                    sent = acknowledged[topic]
                    assert await received(consumer, len(sent)) == sent
        assert broker.stop() == 0


async def received_by_all(
    client: pydanube.Client, sent: dict[str, list[bytes]]
) -> None:
    """Check that new subscriptions receive everything."""
    for topic, payloads in sent.items():
        async with client.consumer(
            topic, subscription=f"s{len(payloads)}", start="earliest"
        ) as consumer:
            assert await received(consumer, len(payloads)) == payloads


@pytest.mark.soak
async def test_number_of_processes_can_change_between_starts(
    tmp_path: Path, settings: Path
) -> None:
    sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    for count in (1, 2, 3, 1, 2):
        with several(tmp_path, settings, count) as broker:
            assert len(broker.children()) == (0 if count == 1 else count)
            async with pydanube.connect(broker.url) as client:
                for topic, payloads in sent.items():
                    async with client.producer(topic) as producer:
                        payloads.append(f"{topic} with {count}".encode())
                        await producer.send(payloads[-1])
                await received_by_all(client, sent)
            assert broker.stop() == 0


async def test_supervisor_that_was_killed_leaves_no_process(
    tmp_path: Path, settings: Path
) -> None:
    sent = {topic: [topic.encode()] for topic in TOPICS}
    with several(tmp_path, settings, 2) as broker:
        async with pydanube.connect(broker.url) as client:
            for topic in TOPICS:
                async with client.producer(topic) as producer:
                    await producer.send(topic.encode())
        processes = broker.children()
        broker.kill()
        # It waits for the processes, which stop without their supervisor.
        broker.start()
        assert not set(processes) & set(broker.children())
        # They may take a moment to exit after they have given the lock up.
        await eventually(lambda: not any(map(is_running, processes)))
        async with pydanube.connect(broker.url) as client:
            await received_by_all(client, sent)
        assert broker.stop() == 0


async def test_any_process_answers_about_every_topic_over_http(
    tmp_path: Path, settings: Path
) -> None:
    with several(tmp_path, settings, 3) as broker:
        async with pydanube.connect(broker.url) as client:
            for topic in TOPICS:
                async with client.producer(topic) as producer:
                    await producer.send(b"x")
        url = f"{broker.http_url}/api/v1/describe_topic"
        for topic in [*TOPICS, "/default/none"]:
            for _ in range(8):
                # Any process accepts the new connection of each request.
                async with httpx.AsyncClient() as http:
                    answer = await http.get(url, params={"topic": topic})
                assert answer.status_code == (200 if topic in TOPICS else 404)
                assert topic in answer.text
        assert broker.stop() == 0


async def test_process_that_cannot_start_leaves_its_topics_to_the_others(
    tmp_path: Path, settings: Path
) -> None:
    sent = {topic: [topic.encode(), b"after"] for topic in TOPICS}
    with several(tmp_path, settings, 2) as broker:
        first, second = broker.children()
        own = tmp_path / "data" / "processes" / "2"
        own.rename(own.with_name("away"))
        own.write_text("not a directory")
        async with pydanube.connect(broker.url) as client:
            for number in range(2):
                for topic, payloads in sent.items():
                    async with client.producer(topic) as producer:
                        await producer.send(payloads[number])
                if number == 0:
                    # It may have ended, because it could not write there.
                    with suppress(ProcessLookupError):
                        os.kill(second, signal.SIGKILL)
            await received_by_all(client, sent)
        log = tmp_path / "broker.log"
        await eventually(lambda: "processes/2 cannot be used" in log.read_text())
        assert first in broker.children()
        assert broker.stop() == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_backup_has_what_all_processes_have_acknowledged(
    tmp_path: Path, settings: Path, count: int
) -> None:
    sent: dict[str, list[bytes]] = {
        topic: [b"%d" % number for number in range(20)] for topic in TOPICS
    }
    with several(tmp_path, settings, 2) as broker:
        async with pydanube.connect(broker.url) as client:
            for topic, payloads in sent.items():
                async with client.producer(topic) as producer:
                    for payload in payloads:
                        await producer.send(payload)
                async with client.consumer(
                    topic, subscription="acked", start="earliest"
                ) as consumer:
                    for _ in range(5):
                        await consumer.ack(await consumer.receive(timeout_s=60))
                    await consumer.flush()
        async with pydanube.connect(broker.url) as client:
            progress = await client.storage.create_backup("backups")
            while progress.is_running:
                await asyncio.sleep(0.05)
                progress = await client.storage.describe_backup()
        # Each connection comes to one of the processes, by chance.
        for _ in range(4):
            async with pydanube.connect(broker.url) as client:
                progress = await client.storage.describe_backup()
                assert (progress.is_running, progress.error) == (False, "")
                assert progress.id
    objects = DirectoryObjects(tmp_path / "backups")
    backup = await choose_backup(objects, None)
    await restore_backup(objects, backup, tmp_path / "restored" / "data")
    with several(tmp_path / "restored", settings, count) as broker:
        async with pydanube.connect(broker.url) as client:
            await received_by_all(client, sent)
            for topic in TOPICS:
                async with client.consumer(topic, subscription="acked") as consumer:
                    assert await received(consumer, 15) == sent[topic][5:]
        assert broker.stop() == 0


async def test_any_process_answers_for_the_broker(
    tmp_path: Path, settings: Path
) -> None:
    with several(tmp_path, settings, 3) as broker:
        async with pydanube.connect(broker.url) as client:
            for topic in TOPICS:
                async with client.producer(topic) as producer:
                    await producer.send(b"x")
        # Each connection comes to one of the processes, by chance.
        for _ in range(8):
            async with httpx.AsyncClient(base_url=broker.http_url) as http:
                ready = await http.get("/readyz")
                assert (ready.status_code, ready.json()) == (200, {"ready": True})
                metrics = (await http.get("/metrics")).text.splitlines()
            assert "danube_processes_ready 3" in metrics
            # Their sessions end with the processes, and not after a time.
            assert not [each for each in metrics if "session_ttl_seconds{" in each]
            for number in (1, 2, 3):
                assert f'danube_ready{{process="{number}"}} 1.0' in metrics
            counts = [
                float(each.rpartition(" ")[2])
                for each in metrics
                if each.startswith("danube_topics{")
            ]
            assert len(counts) == 3
            assert sum(counts) == len(TOPICS)
        await limits_are_those_of_the_broker(broker)


async def limits_are_those_of_the_broker(broker: BrokerProcess) -> None:
    """Check a quota of connections, which come to three processes by chance."""
    async with pydanube.connect(broker.url) as admin, AsyncExitStack() as stack:
        await admin.security.set_quota("anonymous", pydanube.Quota(connections=7))

        async def is_refused() -> bool:
            # A process may not know the quota at first.
            async with AsyncExitStack() as attempt:
                try:
                    await attempt.enter_async_context(pydanube.connect(broker.url))
                except QuotaExceeded:
                    return True
                return False

        for _ in range(6):
            await stack.enter_async_context(pydanube.connect(broker.url))
        await eventually(is_refused)
        for _ in range(8):
            assert await is_refused()
        [found] = await admin.security.quotas()
        assert found.used == {"connections": 7, "sessions": 0}
        assert found.refused_count >= 9


async def test_tls_and_keys_hold_at_every_process(tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    authority = str(files["ca"][0])
    key_file = tmp_path / "bootstrap.key"
    settings = tmp_path / "settings.yaml"
    certificate, key = map(str, files["server"])
    settings.write_text(
        json.dumps(
            {
                "tls": {"certificate_file": certificate, "key_file": key},
                "security": {"enabled": True, "bootstrap_key_file": str(key_file)},
                # The processes call each other, and check each other's certificates.
                "cluster": {"shards": 8, "ca_file": authority},
            }
        )
    )
    context = ssl.create_default_context(cafile=authority)
    with several(tmp_path, settings, 3) as broker:
        url = f"danubes://127.0.0.1:{broker.stream_port}"
        async with pydanube.connect(
            url, ca_file=authority, api_key=key_file.read_text().strip()
        ) as admin:
            for topic in TOPICS:
                async with admin.producer(topic) as producer:
                    await producer.send(b"x")
            created = await admin.security.create_api_key("bob", principal="bob")
            await admin.security.set_role("reads", ["consume"], [TOPICS[0]])
            await admin.security.add_binding("user:bob", ["reads"], [TOPICS[0]])
        # Each connection comes to one of the processes, which knows the new key.
        for _ in range(4):
            async with pydanube.connect(
                url, ca_file=authority, api_key=created.key
            ) as bob:
                read = [each async for batch in bob.read(TOPICS[0]) for each in batch]
                assert [each.payload for each in read] == [b"x"]
                with pytest.raises(PermissionDenied):
                    await bob.topics.delete(TOPICS[0])
        for topic in TOPICS:
            async with httpx.AsyncClient(verify=context) as http:
                address = f"{broker.http_url}/api/v1/describe_topic"
                refused = await http.get(address, params={"topic": topic})
                headers = {"Authorization": f"Bearer {key_file.read_text().strip()}"}
                answer = await http.get(
                    address, params={"topic": topic}, headers=headers
                )
            assert (refused.status_code, answer.status_code) == (401, 200)
            assert topic in answer.text
        assert broker.stop() == 0
