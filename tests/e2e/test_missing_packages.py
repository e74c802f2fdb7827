"""Commands without the packages of the broker, in processes that do not find them."""

import json
import subprocess
import sys
import tarfile

import pytest

from support.drivers.commands import environment

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WITHOUT = """
import importlib.metadata as metadata
import sys

class Hidden:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Hidden())
sys.argv[:2] = ["danube"]
find = metadata.entry_points
metadata.entry_points = lambda **chosen: metadata.EntryPoints(
    each
    for each in find(**chosen)
    if each.value.partition(".")[0].partition(":")[0] not in hidden
)
from pydanube_cli.main import main
main()
"""
BROKER = "pydanube_broker,cryptography"


def run_without(hidden, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, hidden, *arguments],
        env=environment(**variables),
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def nowhere():
    """Return the options that name brokers which do not run."""
    # Nothing listens at port 1.
    return ["--url", "danube://127.0.0.1:1", "--http-url", "http://127.0.0.1:1"]


def test_doctor_checks_brokers_elsewhere_without_the_broker(nowhere):
    done = run_without(BROKER, "doctor", *nowhere)
    assert done.returncode == 1, done.stderr
    assert "2 problems" in done.stdout
    assert "disk latency" not in done.stdout
    assert "pip install 'pydanube[broker]'" in done.stdout + done.stderr


@pytest.mark.parametrize("options", [["--machine"], ["--data-dir", "data"]])
def test_doctor_for_this_machine_names_the_extra_that_it_needs(options):
    done = run_without(BROKER, "doctor", *options)
    assert done.returncode != 0
    assert "danube doctor for this machine needs packages" in done.stderr
    assert "pip install 'pydanube[broker]'" in done.stderr


def test_debug_bundle_without_the_broker_lacks_this_machine_only(nowhere, tmp_path):
    path = tmp_path / "bundle.tar.gz"
    done = run_without(BROKER, "debug", "bundle", *nowhere, "--output", str(path))
    assert done.returncode == 0, done.stderr
    with tarfile.open(path) as archive:
        missing = json.load(archive.extractfile("bundle/missing.json"))
        assert "bundle/findings.json" in archive.getnames()
    assert "pydanube[broker]" in missing["settings.json"]


@pytest.mark.parametrize(
    ("name", "variables", "options"),
    [
        ("mqtt", {}, ["--mqtt-port", "1883"]),
        ("mqtt", {"DANUBE_MQTT__PORT": "1883"}, []),
        ("kafka", {}, ["--kafka-port", "9092"]),
    ],
)
def test_listener_that_is_not_installed_names_its_extra(name, variables, options):
    done = run_without(f"pydanube_{name}", "broker", *options, **variables)
    assert done.returncode != 0
    assert f"pip install 'pydanube[{name}]'" in done.stderr
