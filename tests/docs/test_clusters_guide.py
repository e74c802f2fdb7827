"""The cluster of the guide starts, is used by its program, and is drained."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import pydanube.sync
from support.commands import danube
from support.etcd import etcd_member
from support.examples import BLOCK
from support.processes import BrokerProcess
from support.project import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs" / "guide" / "clusters.md").read_text()


def test_the_cluster_of_the_guide_works(tmp_path: Path) -> None:
    settings = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    program = BLOCK.findall(PAGE)[0][1]
    with etcd_member(tmp_path) as etcd, ExitStack() as stack:
        text = settings.replace("http://127.0.0.1:2379", etcd.url)
        text = text.replace("cluster_name: shop", f"cluster_name: {uuid4().hex}")
        text = text.replace("/tmp/danube-shop", str(tmp_path / "remote"))
        brokers = []
        for name in ("one", "two"):
            path = tmp_path / f"{name}.yaml"
            # The section of the cluster is the last one.  Few shards move quickly.
            path.write_text(f"{text}  broker_id: {name}\n  shards: 8\n")
            broker = BrokerProcess(tmp_path / name, "--config", str(path))
            brokers.append(stack.enter_context(broker))
        one, two = brokers
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
            found = client.describe_topic("/default/orders")
        assert found.end_offset == 1000
