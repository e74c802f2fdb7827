"""The brokers of deploy/compose.yaml form a cluster."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import yaml

import pydanube.sync
from support.drivers.commands import DANUBE, danube, environment
from support.servers.etcd import etcd_member
from support.servers.object_stores import BUCKET, S3Server
from support.servers.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DEPLOY = ROOT / "deploy"
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
COMPOSE = yaml.safe_load(DEFAULT.sub(r"\1", (DEPLOY / "compose.yaml").read_text()))
BROKERS = [
    service
    for service in COMPOSE["services"].values()
    if service.get("image") == "pydanube"
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Start the brokers, with servers and ports of the test; give their URL."""
    text = (DEPLOY / "cluster.yaml").read_text() + "  shards: 8\n"
    with etcd_member(tmp_path) as etcd, S3Server(tmp_path) as s3, ExitStack() as stack:
        for name, url in {
            "http://etcd:2379": etcd.url,
            "http://s3:7070": f"http://127.0.0.1:{s3.port}",
            "s3://danube/": f"s3://{BUCKET}/",
        }.items():
            assert name in text
            text = text.replace(name, url)
        settings = tmp_path / "cluster.yaml"
        settings.write_text(text)
        addresses = []
        for service in BROKERS:
            port = free_port()
            addresses.append(f"127.0.0.1:{port}")
            given = service["environment"]
            variables = given | {
                "DANUBE_CONFIG": str(settings),
                "DANUBE_CLUSTER__ADVERTISED_URL": f"danube://{addresses[-1]}",
                "DANUBE_DATA_DIR": str(tmp_path / given["DANUBE_CLUSTER__BROKER_ID"]),
                "DANUBE_LISTEN__STREAM_PORT": str(port),
                **{
                    f"DANUBE_LISTEN__{listener}_PORT": "0"
                    for listener in ("GRPC", "ADMIN", "HTTP")
                },
            }
            process = subprocess.Popen(
                [*DANUBE, "broker"], env=environment("", **variables)
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield "danube://" + ",".join(addresses)


def test_the_brokers_serve_topics_together(cluster: str) -> None:
    for address in cluster.removeprefix("danube://").split(","):
        with pydanube.sync.connect(f"danube://{address}", wait_s=60) as client:
            client.cluster.describe()
    with pydanube.sync.connect(cluster) as client:
        client.topics.create("/default/orders", partitions=6)
        with client.producer("/default/orders") as producer:
            producer.send_batch([b"order %d" % number for number in range(600)])
        described = map(client.topics.describe, client.topics.list("default"))
        assert sum(topic.end_offset for topic in described) == 600
    shown = danube("cluster", "status", url=cluster)
    assert shown.returncode == 0, shown.stderr
    for service in BROKERS:
        assert service["environment"]["DANUBE_CLUSTER__BROKER_ID"] in shown.stdout


def test_clients_reach_each_broker_at_its_advertised_address() -> None:
    for service in BROKERS:
        advertised = service["environment"]["DANUBE_CLUSTER__ADVERTISED_URL"]
        published = [port.split(":")[0] for port in service["ports"]]
        assert advertised.rpartition(":")[2] in published


def test_the_image_installs_what_a_cluster_needs() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    for needed in ("pydanube[objects,", "pydanube-broker[etcd]", "pydanube-cli"):
        assert f"./{needed}" in image
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", image, re.MULTILINE):
        for path in source.split():
            assert (ROOT / path).exists(), path
