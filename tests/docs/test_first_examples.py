"""The first example of each page works on an empty broker, before anything else."""

from __future__ import annotations

import re

import pytest

from pydanube_broker.testing import sync_memory_broker
from support.project import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "connectors": "it is a part of a declaration",
    "danube-clients": "it is for a client of another project",
    "kafka": "it needs the listener for Kafka clients",
    "mqtt": "it needs the MQTT listener",
    "security": "it needs credentials",
    "sinks": "it needs Spark",
    "spark": "it needs Spark",
    "spark-cluster": "it needs Spark",
    "spark-write": "it needs Spark",
    "testing": "it is a test",
    "tls": "it needs certificates",
    "workers": "it works for ever",
}
"""Pages whose first example other tests run, or that ends by being interrupted."""


def first_examples():
    """The first program of each page that has one."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]:
        blocks = BLOCK.findall(page.read_text())
        if blocks and page.stem not in ELSEWHERE:
            yield pytest.param(blocks[0], id=page.stem)


@pytest.mark.slow
@pytest.mark.parametrize("code", list(first_examples()))
def test_the_first_example_of_a_page_works_on_an_empty_broker(
    code, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with sync_memory_broker() as broker, broker.redirect():
        program = compile(code, "example", "exec", dont_inherit=True)
        exec(program, {"__name__": "__main__"})


def test_pages_without_an_example_that_runs_exist():
    pages = {page.stem for page in (ROOT / "docs/guide").glob("*.md")}
    assert ELSEWHERE.keys() <= pages
