"""
A replication of a secured broker to a cluster whose brokers are killed.

The source also compacts its topic, so offsets are missing, and its messages have keys.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack, suppress

import pytest

import pydanube
from support.drivers.commands import end, start_danube
from support.servers.certificates import write_certificates
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("no_credentials"),
]

TOPIC, COPY = "/default/profiles", "/mirror/profiles"
PARTITIONS = 3
KEYS = 50
COUNT = 6000
CUT_OVER_OPTIONS = ("--yes", "--format", "json")
KILLS_AT = (500, 1200, 2000)


def secured_source(directory):
    """Return a broker with TLS and a bootstrap key, which seals soon."""
    certificate_file, key_file = map(str, write_certificates(directory)["server"])
    config = directory / "source.yaml"
    settings = {
        "tls": {"certificate_file": certificate_file, "key_file": key_file},
        "security": {
            "enabled": True,
            "bootstrap_key_file": str(directory / "bootstrap.key"),
        },
        "storage": {"seal_age_s": 0.5, "seal_interval_s": 0.2},
    }
    config.write_text(json.dumps(settings))
    return BrokerProcess(directory / "source", "--config", str(config))


def succeed(*arguments):
    """Run a command to its end; return its output."""
    process = start_danube(*arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


async def publish(admin, first, end):
    """Publish the numbers *first … end*, each with one of ``KEYS`` keys."""
    async with admin.producer(TOPIC) as producer:
        for number in range(first, end):
            producer.send_nowait(b"%d" % number, key=f"k{number % KEYS}")
        await producer.flush()


async def until_sealed(client, topic):
    """Wait until all messages of a topic are in segments."""
    found = await client.topics.describe(topic)
    while found.sealed_offset < found.end_offset:
        found = await client.topics.describe(topic)


async def read_all(client, topic):
    """Return the numbers of each key, in their order."""
    found = {}
    for partition in await client.topics.partitions(topic):
        end_offset = (await client.topics.describe(partition)).end_offset
        async for batch in client.read(partition, start=0, end=end_offset):
            for message in batch:
                found.setdefault(message.key, []).append(int(message.payload))
    return found


async def count_of(client, topic):
    names = await client.topics.partitions(topic)
    return sum([(await client.topics.describe(each)).message_count for each in names])


async def test_a_cluster_gets_each_message_once_and_in_order(tmp_path):
    with ExitStack() as stack:
        source = stack.enter_context(secured_source(tmp_path))
        etcd = stack.enter_context(etcd_member(tmp_path / "etcd"))
        settings = cluster_settings(etcd.url, tmp_path)
        brokers = [
            stack.enter_context(cluster_broker(tmp_path, settings, name))
            for name in ("a", "b", "c")
        ]
        ca_file, key_file = tmp_path / "ca.pem", tmp_path / "bootstrap.key"
        from_url = (
            f"danubes://127.0.0.1:{source.stream_port}"
            f"?ca_file={ca_file}&api_key_file={key_file}"
        )
        to_url = "danube://" + ",".join(f"127.0.0.1:{b.stream_port}" for b in brokers)
        ends = ("--from", from_url, "--to", to_url)

        def start():
            return start_danube(
                *("replicate", "run", "edge", *ends, "--topic", "/default/*"),
                *("--rename", "/default/=/mirror/", "--interval", "500ms"),
                *("--bandwidth", "60KB", "--format", "json"),
            )

        async with (
            pydanube.connect(from_url) as admin,
            pydanube.connect(to_url, wait_s=60) as client,
        ):
            await admin.topics.create(TOPIC, partitions=PARTITIONS)
            await admin.subscriptions.create(TOPIC, "billing", start=0)
            await publish(admin, 0, COUNT // 2)
            for partition in await admin.topics.partitions(TOPIC):
                # A replication does not let segments change.
                await until_sealed(admin, partition)
                succeed(
                    *("maintenance", "run", partition, "--compact-keys"),
                    *("--url", from_url),
                )
            replicator = start()
            await publish(admin, COUNT // 2, COUNT)
            for number, reached in enumerate(KILLS_AT):
                count = 0
                while count < reached:
                    with suppress(pydanube.Unavailable, pydanube.NotFound):
                        count = await count_of(client, COPY)
                brokers[number].kill()
                if number == 1:
                    end(replicator, signal.SIGKILL)
                    replicator = start()
                brokers[number].start()
            for line in replicator.stdout:
                status = json.loads(line)
                if (status["state"], status["lag"]) == ("running", 0):
                    break
            kept, copied = await read_all(admin, TOPIC), await read_all(client, COPY)
            assert sum(map(len, kept.values())) == KEYS + COUNT // 2
            for key, numbers in copied.items():
                assert numbers == sorted(set(numbers)), f"{key}: repeated or disordered"
                assert set(kept[key]) <= set(numbers), f"{key}: lost"
            assert copied.keys() == kept.keys()
            code, _, err = end(replicator, signal.SIGTERM)
            assert (code, "Traceback" in err) == (143, False), err
            moved = json.loads(
                succeed("replicate", "cut-over", "edge", *ends, *CUT_OVER_OPTIONS)
            )
            assert {each["subscription"] for each in moved} == {"billing"}
            assert len(moved) == PARTITIONS
