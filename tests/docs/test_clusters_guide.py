"""The cluster of the guide starts, is used by its program, and is drained."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import pydanube
import pydanube.sync
from support.drivers.commands import danube, end, start_danube
from support.drivers.examples import BLOCK
from support.project import ROOT
from support.servers.etcd import etcd_member
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs" / "guide" / "clusters.md").read_text()


@contextmanager
def cluster_of_the_guide(directory: Path) -> Iterator[list[BrokerProcess]]:
    settings = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    with etcd_member(directory) as etcd, ExitStack() as stack:
        text = settings.replace("http://127.0.0.1:2379", etcd.url)
        text = text.replace("cluster_name: shop", f"cluster_name: {uuid4().hex}")
        text = text.replace("/tmp/danube-shop", str(directory / "remote"))
        brokers = []
        for name in ("one", "two"):
            path = directory / f"{name}.yaml"
            # The section of the cluster is the last one.  Few shards move quickly.
            path.write_text(f"{text}  broker_id: {name}\n  shards: 8\n")
            broker = BrokerProcess(directory / name, "--config", str(path))
            brokers.append(stack.enter_context(broker))
        yield brokers


def test_the_cluster_of_the_guide_works(tmp_path: Path) -> None:
    [program] = [code for kind, code in BLOCK.findall(PAGE) if kind == "python"]
    with cluster_of_the_guide(tmp_path) as (one, two):
        program = program.replace("6651", str(one.stream_port))
        program = program.replace("6661", str(two.stream_port))
        subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
        drained = danube("brokers", "drain", "one", url=two.url)
        assert drained.returncode == 0, drained.stderr
        shown = danube("cluster", "status", "--format", "json", url=two.url)
        modes = {
            each["broker_id"]: each["mode"]
            for each in json.loads(shown.stdout)["brokers"]
        }
        assert modes == {"one": "drained", "two": "active"}
        with pydanube.sync.connect(one.url) as client:
            found = client.topics.describe("/default/orders")
        assert found.end_offset == 1000


ORDERS, LINES = "/default/orders", "/shop/lines"


@dataclass
class Order:
    number: int


async def fill(url: str) -> None:
    """Make a broker have what a broker has after some use."""
    async with pydanube.connect(url) as client:
        await client.namespaces.create("shop")
        await client.topics.create(
            ORDERS, partitions=2, retention=pydanube.Retention(age_s=86400.0)
        )
        await client.topics.create(LINES)
        async with client.producer(LINES) as producer:
            for number in range(100):
                await producer.send(b"%d" % number, key="k", attributes={"a": "b"})
        async with client.producer(ORDERS, schema=Order) as orders:
            for number in range(20):
                await orders.send(Order(number), key=str(number))
        await client.subscriptions.create(LINES, "billing", start=0)
        await client.subscriptions.skip(LINES, "billing", 40)


async def described(url: str) -> list[object]:
    """Return what must be the same at the broker and in the cluster."""
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
        found: list[object] = []
        for topic in (LINES, f"{ORDERS}-part-0", f"{ORDERS}-part-1"):
            facts = await client.topics.describe(topic)
            found += [facts.policy.retention, facts.schema]
            found += [
                (message.payload, message.key, message.attributes, message.publish_time)
                async for batch in client.read(topic)
                for message in batch
            ]
        return found


@pytest.mark.soak
@pytest.mark.smoke
def test_the_topics_of_a_single_broker_move_into_the_cluster(tmp_path: Path) -> None:
    run, cut_over = (
        shlex.split(code)[1:]
        for kind, code in BLOCK.findall(PAGE)
        if kind == "bash" and "danube replicate" in code
    )
    with (
        BrokerProcess(tmp_path / "single") as single,
        cluster_of_the_guide(tmp_path) as (one, two),
    ):
        pydanube.run(fill(single.url))
        usual = {"danube://127.0.0.1:6651": single.url}
        usual["danube://127.0.0.1:7651,127.0.0.1:7661"] = (
            f"{one.url},127.0.0.1:{two.stream_port}"
        )
        run, cut_over = (
            [usual.get(word, word) for word in words] for words in (run, cut_over)
        )
        process = start_danube(*run, "--interval", "50ms", "--format", "json")
        for line in process.stdout:
            status = json.loads(line)
            if (status["state"], status["lag"]) == ("running", 0):
                break
        end(process, signal.SIGINT)
        done = danube(*cut_over, "--format", "json")
        assert done.returncode == 0, done.stderr
        [moved] = json.loads(done.stdout)
        assert (moved["subscription"], moved["cursor"]) == ("billing", 40)
        before, after = (pydanube.run(described(each.url)) for each in (single, two))
        assert len(before) > 120
        assert after == before
