"""The files that the guide to pipelines and the README show are understood."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from pydanube_cli.main import app
from pydanube_spark.pipelines.loading import load
from support.drivers.command_lines import check_line
from support.project import ROOT

PAGE = (ROOT / "docs/guide/pipelines.md").read_text(encoding="utf-8")
WHOLE, *PARTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

SOURCES = "sources: {payments: {topic: /default/payments}}\n"
SINKS = "sinks: {out: {input: payments, format: noop}}\n"


def test_the_whole_file_is_understood(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(WHOLE)
    (tmp_path / "functions.py").write_text("def large_ones(orders, customers): ...\n")
    assert load(path).spec.sinks.keys() == {"table", "topic"}


def test_the_file_in_the_readme_is_understood(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    assert load(path).spec.sinks.keys() == {"table"}


LINES = [
    line
    for page in ("pipelines", "spark-cluster")
    for block in re.findall(
        r"^```bash\n(.*?)^```",
        (ROOT / f"docs/guide/{page}.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    for line in block.splitlines()
    if line.startswith("danube ")
]


@pytest.mark.parametrize("line", LINES)
def test_every_command_can_be_typed(line):
    check_line(line)


def test_submissions_are_shown(tmp_path, monkeypatch):
    """The commands with --dry-run run as they stand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(f"name: orders\n{SOURCES}{SINKS}")
    dry = [line for line in LINES if "--dry-run" in line]
    assert dry
    for line in dry:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_understood(tmp_path, part):
    path = tmp_path / "pipeline.yaml"
    rest = [each for each in (SOURCES, SINKS) if each.partition(" ")[0] not in part]
    path.write_text("".join([part, "name: p\n", *rest]))
    (tmp_path / "functions.py").write_text("def totals(payments): ...\n")
    assert load(path).name == "p"
