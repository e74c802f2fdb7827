"""The commands of the guide to replication, one after the other."""

from __future__ import annotations

import json
import re
import shlex
import signal

import pytest

import pydanube
from support.drivers.commands import danube, end, start_danube
from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs/guide/replicate.md").read_text(encoding="utf-8")


def test_the_commands_run(tmp_path):
    blocks = re.findall(r"^```bash\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)

    async def publish(url):
        async with pydanube.connect(url) as client:
            async with client.producer("/default/orders") as producer:
                await producer.send_batch([b"1", b"2", b"3"])
            await client.subscriptions.create("/default/orders", "billing", start=1)

    with (
        BrokerProcess(tmp_path / "source") as source,
        BrokerProcess(tmp_path / "target") as target,
    ):
        pydanube.run(publish(source.url))
        usual = {"danube://127.0.0.1:6651": source.url}
        usual["danube://127.0.0.1:7651"] = target.url
        run, status, cut_over, remove = (
            [usual.get(word, word) for word in shlex.split(block)[1:]]
            for block in blocks
        )
        process = start_danube(*run, "--interval", "50ms")
        for line in process.stdout:
            if b"running, 1 topics, 3 messages, lag 0" in line:
                break
        code, out, err = end(process, signal.SIGINT)
        assert (code, err) == (130, ""), err
        assert "stopped" in out
        found = json.loads(danube(*status, "--format", "json").stdout)
        assert [each["lag"] for each in found] == [0]
        done = danube(*cut_over)
        assert done.returncode == 0, done.stderr
        assert re.search(r"/edge/orders +billing +1 +1\b", done.stdout)
        again = danube(*run)
        assert again.returncode == 2
        assert "has been cut over" in again.stderr
        assert danube(*remove).returncode == 0
