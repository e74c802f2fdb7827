"""`danube pipeline submit` without a cluster."""

import stat

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from pydanube_cli.main import app

FILE = """\
name: p
parameters: {table: t}
sources: {a: {topic: /default/a}}
steps:
  b: {python: "functions.py:f", inputs: [a]}
sinks: {o: {input: b, format: noop, options: {password: "${env:PASSWORD}"}}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    (tmp_path / "functions.py").write_text("def f(a):\n    return a\n")
    return path


def submit(file, *arguments, **variables):
    words = ["pipeline", "submit", str(file), *arguments]
    return CliRunner().invoke(app, words, env={"PASSWORD": "secret"} | variables)


def test_manifests_have_the_files_but_no_secrets(file):
    done = submit(file, "--image", "i", "--set", "table=x", "--dry-run")
    assert done.exit_code == 0, done.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert found["ConfigMap"]["data"].keys() == {"p.yaml", "functions.py"}
    assert "secret" not in done.stdout
    [container] = found["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--set", "table=x"]


MIRROR = """\
name: m
trigger: continuous
mirrors:
  shop:
    topic: /default/shop.{table}
    tables: {"*": {key: id}}
    format: danube-delta
    path: "/lake/{table}"
    schema_changes: evolve
"""


def test_a_mirror_needs_no_broker_to_be_submitted(tmp_path):
    """The pod finds the tables of the pattern, which may change."""
    path = tmp_path / "m.yaml"
    path.write_text(MIRROR)
    done = submit(path, "--image", "i", "--dry-run")
    assert done.exit_code == 0, done.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert found["ConfigMap"]["data"] == {"m.yaml": MIRROR}
    assert found["Deployment"]["spec"]["replicas"] == 1


def test_manifests_are_applied_by_kubectl(file, tmp_path):
    """A program of this name stands for kubectl, and keeps what it is given."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/in\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    arguments = ["--master", "k8s://https://head:6443", "--image", "i"]
    done = submit(file, *arguments, PATH=f"{program.parent}:/usr/bin:/bin")
    assert done.exit_code == 0, done.stderr
    words = (tmp_path / "words").read_text()
    assert words == "apply --server https://head:6443 -f -\n"
    dry = submit(file, *arguments, "--dry-run")
    assert (tmp_path / "in").read_text() == dry.stdout
    missing = submit(file, *arguments, PATH=str(tmp_path))
    assert missing.exit_code == 3
    assert "kubectl is not installed" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--image'"),
        (["--image", "i", "--master", "spark://x:1"], "must begin with k8s://"),
        (["--image", "i", "--conf", "x"], "spark.NAME=VALUE"),
    ],
)
def test_options_that_do_not_fit_are_refused(file, arguments, message):
    done = submit(file, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
