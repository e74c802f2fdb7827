"""Every example of the guides runs, top to bottom, as it stands."""

import asyncio
import os
import re
import subprocess
import sys

import pytest

import pydanube
from pydanube_broker.servers.settings.config import load_config
from support.drivers.examples import (
    BLOCK,
    run_commands,
    run_page,
    run_page_here,
    stores_in,
)
from support.fakes.tiered_brokers import publish, settings, uploaded
from support.project import ROOT
from support.servers.processes import BrokerProcess
from support.worlds.current import MEMORY, sync_memory_broker

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

PAGES = [
    "docs/guide/start.md",
    "docs/guide/coming-from.md",
    "docs/guide/produce.md",
    "docs/guide/consume.md",
    "docs/guide/exactly-once.md",
    "docs/guide/read.md",
    "docs/guide/partitions.md",
    "docs/guide/several-topics.md",
    "docs/guide/request-reply.md",
    "docs/guide/delays.md",
    "docs/guide/failures.md",
    "docs/guide/admin.md",
    "docs/guide/schemas.md",
    "docs/guide/observability.md",
    "docs/guide/lakehouse.md",
    "docs/guide/iceberg-catalog.md",
    "docs/guide/maintenance.md",
    "docs/guide/backup.md",
    "docs/guide/authorization.md",
]


@pytest.mark.parametrize(
    "page", ["operate", "object-storage", "plugins", "authorization", "backup"]
)
def test_settings_in_guides_are_settings(page, tmp_path):
    text = (ROOT / f"docs/guide/{page}.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert examples
    path = tmp_path / "broker.yaml"
    for example in examples:
        path.write_text(example)
        assert load_config(path, {}, {}) != load_config(None, {}, {})


def test_tests_in_the_guide_to_testing_pass(tmp_path):
    blocks = [
        code
        for kind, code in BLOCK.findall((ROOT / "docs/guide/testing.md").read_text())
        if kind == "python"
    ]
    for number, code in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "pydanube_broker.pytest_plugin",
        "-W",
    ]
    done = subprocess.run(
        [*command, "error", "-v", str(tmp_path)],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        # The plugin may be installed, but not twice.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert "".join(blocks).count("def test_") == done.stdout.count(" PASSED")


def test_the_commands_of_the_guide_to_object_storage_run(tmp_path):
    stores = {name: (each["url"], {}) for name, each in stores_in(tmp_path).items()}
    path = settings(tmp_path, (f"fs://{tmp_path}/store", {}), stores)

    async def fill(url):
        async with pydanube.connect(url) as client:
            await publish(client, [b"1", b"2"])
            await uploaded(client, 2)

    with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
        asyncio.run(fill(broker.url))
        # The examples in Python need a server.
        run_commands("docs/guide/object-storage.md", broker, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, world, tmp_path):
    if world == MEMORY:
        run_page(page, tmp_path)
        return
    with sync_memory_broker() as broker:
        run_page_here(page, broker.url, tmp_path)
