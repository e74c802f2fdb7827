"""What users install: wheels, in environments of their own."""

import os
import subprocess
import sys
import venv
import zipfile

import pytest

from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

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
    with client.producer("/default/wheel") as producer:
        keys = [str(n % 7) for n in range(1000)]
        producer.send_batch([b"many"] * 1000, keys=keys, attributes=[{"a": "b"}] * 1000)
    batch = max(client.read("/default/wheel"), key=len)
    assert [message.key for message in batch] == keys
    assert batch[-1].attributes == {"a": "b"}
    try:
        batch.to_arrow()
    except ImportError as error:
        print(error)
print("received")
"""
CLIENT = {"crc32c", "protobuf", "pydanube"}
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


def environment(directory, *wheels):
    """Return the Python of a new environment with *wheels*."""
    venv.create(directory)
    python = directory / "bin" / "python"
    install = ["--python", python, "install", "--quiet", "--no-compile", *wheels]
    installed = run(*PIP, *install, directory=directory)
    assert installed.returncode == 0, installed.stderr
    return python


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Build all wheels; return their directory."""
    directory = tmp_path_factory.mktemp("wheels")
    packages = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", directory]
    built = run(*PIP, *build, *packages, directory=directory)
    assert built.returncode == 0, built.stderr
    assert len(list(directory.glob("*.whl"))) == len(packages)
    return directory


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheels):
    """Return the Python of an environment that has the client without any extra."""
    [client] = wheels.glob("pydanube-*.whl")
    return environment(tmp_path_factory.mktemp("client") / "venv", client)


@pytest.mark.smoke
def test_the_wheel_publishes_and_consumes_without_any_extra(python, tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        done = run(python, "-c", CONVERSATION, broker.url, directory=tmp_path)
    expected = (
        "Arrow data needs pyarrow, which is not installed: "
        "pip install 'pydanube[fast]'\nreceived\n"
    )
    assert (done.stdout, done.stderr) == (expected, "")


@pytest.mark.smoke
def test_the_wheel_brings_nothing_that_the_client_does_not_need(python, tmp_path):
    listing = ["--python", python, "list", "--format=freeze"]
    listed = run(*PIP, *listing, directory=tmp_path)
    names = {line.partition("==")[0].lower() for line in listed.stdout.split()}
    assert names == CLIENT


@pytest.mark.smoke
def test_the_wheels_bring_the_runbooks_and_the_templates(wheels, tmp_path):
    def files(package):
        [wheel] = wheels.glob(f"{package}-*.whl")
        return set(zipfile.ZipFile(wheel).namelist())

    runbooks = "pydanube_console/administration/runbooks.md"
    assert runbooks in files("pydanube_console")
    templates = "pydanube_spark/pipelines/template_files"
    found = files("pydanube_spark")
    assert f"{templates}/pipelines/topic-to-delta/pipeline.yaml" in found
    assert f"{templates}/declarative/spark-pipeline.yml" in found


def test_the_broker_and_its_command_line_work_from_their_wheels(wheels, tmp_path):
    chosen = [
        wheel
        for name in ("pydanube", "pydanube_broker", "pydanube_cli")
        for wheel in wheels.glob(f"{name}-*.whl")
    ]
    python = environment(tmp_path / "venv", *chosen)
    checked = run(python.with_name("danube"), "broker", "--help", directory=tmp_path)
    assert checked.returncode == 0, checked.stderr
    listed = run(python.with_name("danube"), "--help", directory=tmp_path)
    assert "topics" in listed.stdout
    assert "pipeline" not in listed.stdout.split()
    missing = run(python.with_name("danube"), "pipeline", "list", directory=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.endswith("pip install 'pydanube[pipelines]'\n")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["-c", "import pydanube; pydanube.Schema.of(dict)"], "schemas"),
    ],
)
def test_what_needs_an_extra_names_it(python, tmp_path, arguments, extra):
    done = run(python, *arguments, directory=tmp_path)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"pip install 'pydanube[{extra}]'")
