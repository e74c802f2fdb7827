"""What users install: the wheel, in an environment of its own."""

import os
import subprocess
import sys
import venv

import pytest

from support.processes import BrokerProcess
from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.smoke]

CONVERSATION = """
import sys
from pydanube import sync

with sync.connect(sys.argv[1]) as client:
    with client.producer("/default/wheel") as producer:
        producer.send(b"hello", key="k")
    options = {"subscription": "s", "start": "earliest"}
    with client.consumer("/default/wheel", **options) as consumer:
        message = consumer.receive(timeout_s=30)
        assert message.payload == b"hello", message
        consumer.ack(message)
print("received")
"""
CLIENT = {"crc32c", "protobuf", "pyarrow", "pydanube", "uvloop"}
"""All that the client brings."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*command, directory):
    return subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        # Nothing of the checkout may be found instead of the wheel.
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment that has the wheel without any extra."""
    directory = tmp_path_factory.mktemp("wheel")
    wheel = ["wheel", "--quiet", "--no-deps", "-w", "dist", ROOT]
    built = run(*PIP, *wheel, directory=directory)
    assert built.returncode == 0, built.stderr
    venv.create(directory / "venv")
    python = directory / "venv" / "bin" / "python"
    [wheel] = (directory / "dist").glob("*.whl")
    install = ["--python", python, "install", "--quiet", "--no-compile", wheel]
    installed = run(*PIP, *install, directory=directory)
    assert installed.returncode == 0, installed.stderr
    return python


def test_the_wheel_publishes_and_consumes_without_any_extra(python, tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        done = run(python, "-c", CONVERSATION, broker.url, directory=tmp_path)
    assert (done.stdout, done.stderr) == ("received\n", "")


def test_the_wheel_brings_nothing_that_the_client_does_not_need(python, tmp_path):
    listing = ["--python", python, "list", "--format=freeze"]
    listed = run(*PIP, *listing, directory=tmp_path)
    names = {line.partition("==")[0].lower() for line in listed.stdout.split()}
    assert names == CLIENT


def test_the_wheel_has_the_runbooks(python, tmp_path):
    code = "from pydanube.administration.runbooks import runbooks; print(*runbooks())"
    assert "BrokerDown" in run(python, "-c", code, directory=tmp_path).stdout.split()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["-m", "pydanube", "topics", "list"], "cli"),
        (["-m", "pydanube", "broker"], "broker"),
        (["-c", "import pydanube.testing"], "schemas"),
        (["-c", "import pydanube; pydanube.Schema.of(dict)"], "schemas"),
    ],
)
def test_what_needs_an_extra_names_it(python, tmp_path, arguments, extra):
    done = run(python, *arguments, directory=tmp_path)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"pip install 'pydanube[{extra}]'")
