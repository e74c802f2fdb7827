"""The files that the guide to pipelines and the README show are understood."""

import re

import pytest

from pydanube.pipelines.loading import load
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


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_understood(tmp_path, part):
    path = tmp_path / "pipeline.yaml"
    rest = [each for each in (SOURCES, SINKS) if each.partition(" ")[0] not in part]
    path.write_text("".join([part, "name: p\n", *rest]))
    assert load(path).name == "p"
