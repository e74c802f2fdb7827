"""Definitions are imported into a cluster whose brokers end meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

import pydanube
from support.drivers.commands import DANUBE, danube, environment
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

TOPICS = 150


async def define(url):
    async with pydanube.connect(url) as client:
        await client.namespaces.create("shop")
        for number in range(TOPICS):
            name = f"/shop/t{number}"
            await client.topics.create(name, partitions=None if number % 5 else 3)
            await client.subscriptions.create(name, "s", type="shared")
            retention = pydanube.Retention(age_s=1000 + number)
            await client.topics.configure(name, retention=retention)


async def until_some_are_imported(url):
    async with pydanube.connect(url) as client:
        while len(await client.topics.list()) < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def test_definitions_are_imported_although_brokers_end(tmp_path):
    with BrokerProcess(tmp_path / "data") as alone:
        asyncio.run(define(alone.url))
        exported = danube("export", url=alone.url).stdout
    file = tmp_path / "definitions.json"
    file.write_text(exported)
    with etcd_member(tmp_path / "etcd") as etcd:
        settings = cluster_settings(etcd.url, tmp_path)
        with (
            cluster_broker(tmp_path, settings, "a") as first,
            cluster_broker(tmp_path, settings, "b") as second,
            cluster_broker(tmp_path, settings, "c") as third,
        ):
            url = ",".join(each.url for each in (first, second, third))
            with subprocess.Popen(
                [*DANUBE, "import", str(file)],
                env=environment(url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as importing:
                asyncio.run(until_some_are_imported(third.url))
                assert importing.poll() is None
                second.kill()
                second.start()
                assert first.stop() == 0
                output, _ = importing.communicate()
            assert importing.returncode == 0, output
            repeated = danube("import", str(file), url=url)
            assert repeated.stdout.splitlines()[-1].endswith(" unchanged.")
            assert "created" not in repeated.stdout
            found = danube("export", url=url).stdout
            assert json.loads(found) == json.loads(exported)
