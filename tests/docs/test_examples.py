"""Every example of the README and the guides runs, top to bottom, as it stands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pydanube.servers.config import load_config
from support.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/guide/start.md",
    "docs/guide/produce.md",
    "docs/guide/consume.md",
    "docs/guide/partitions.md",
    "docs/guide/delays.md",
    "docs/guide/failures.md",
    "docs/guide/admin.md",
    "docs/guide/schemas.md",
    "docs/guide/lakehouse.md",
    "docs/guide/maintenance.md",
    "docs/guide/pipelines.md",
]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
URL = "danube://127.0.0.1:6651"
TIMEOUT_S = 180

# The broker of the test stands for the one that the page starts, and the tests
# do not run themselves.
NOT_RUN = ("danube broker", "make ", "pip ", "DANUBE_LISTEN")


PROGRAMS = {
    "danube": [sys.executable, "-m", "pydanube.cli.main"],
    "danube-admin": [sys.executable, "-m", "pydanube.cli.danube_admin"],
    "danube-cli": [sys.executable, "-m", "pydanube.cli.danube_cli"],
    "curl": ["curl", "--fail-with-body", "--silent", "--show-error"],
}


def at(broker, text):
    """*text* with the addresses of *broker* in it, instead of the usual ones."""
    addresses = {
        "http://127.0.0.1:6650": broker.grpc_url,
        "http://127.0.0.1:8080": broker.http_url,
    }
    for usual, own in addresses.items():
        text = text.replace(usual, own)
    return text.replace(
        "danube-admin ", f"danube-admin --endpoint 127.0.0.1:{broker.admin_port} "
    )


# Their blocks build on each other.
PAGES_OF_ONE_SCRIPT = [
    "docs/guide/spark.md",
    "docs/guide/spark-write.md",
    "docs/guide/delta.md",
    "docs/guide/iceberg.md",
]


@pytest.mark.parametrize("page", PAGES_OF_ONE_SCRIPT)
def test_the_examples_of_a_page_run_as_one_script(page, tmp_path):
    blocks = BLOCK.findall((ROOT / page).read_text())
    script = "\n".join(code for language, code in blocks if language == "python")
    with BrokerProcess(tmp_path / "data") as broker:
        run_python(script, broker.url, tmp_path)


def test_the_settings_of_the_operators_guide_are_settings(tmp_path):
    text = (ROOT / "docs/guide/operate.md").read_text()
    [example] = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    path = tmp_path / "broker.yaml"
    path.write_text(example)

    assert load_config(path, {}, {}).listen.host == "0.0.0.0"


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, tmp_path):
    text = (ROOT / page).read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    with BrokerProcess(tmp_path / "data") as broker:
        for language, code in blocks:
            run = run_python if language == "python" else run_bash
            run(at(broker, code), broker.url, tmp_path)


def run_python(code, url, directory):
    assert URL in code or "connect()" in code or "memory_broker" in code
    here = (
        code.replace(URL, url)
        .replace("pydanube.connect()", f"pydanube.connect({url!r})")
        .replace("sync.connect()", f"sync.connect({url!r})")
    )
    execute([sys.executable, "-c", here], directory, url)


def run_bash(code, url, directory):
    for line in code.splitlines():
        if line and not line.startswith(NOT_RUN):
            program, *arguments = shlex.split(line, comments=True)
            execute([*PROGRAMS[program], *arguments], directory, url)


def execute(command, directory, url):
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"DANUBE_URL": url, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
