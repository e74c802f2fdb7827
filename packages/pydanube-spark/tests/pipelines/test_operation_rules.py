"""Tests of the checks of metrics and lineage."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.loading import load

BASE = """\
name: p
sources: {a: {topic: /default/a}}
sinks: {out: {input: a, format: noop}}
"""

VALID = [
    "metrics: {listen: '127.0.0.1:9400'}",
    "metrics: {listen: '[::1]:0'}",
    "lineage: {url: 'http://marquez:5000', api_key: x}",
    "lineage: {file: lineage.ndjson}",
]
INVALID = [
    ("metrics: {listen: localhost}", "metrics.listen", "127.0.0.1:9400"),
    ("metrics: {listen: 'localhost:70000'}", "metrics.listen", "not an address"),
    ("lineage: {namespace: x}", "lineage", "either url or file"),
    ("lineage: {url: marquez}", "lineage.url", "not an http"),
    ("lineage: {file: x, api_key: y}", "lineage.api_key", "only with url"),
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "p.yaml"


@pytest.mark.parametrize("text", VALID)
def test_valid_sections_are_accepted(file, text):
    file.write_text(f"{BASE}{text}\n")
    assert load(file).name == "p"


@pytest.mark.parametrize(("text", "path", "message"), INVALID)
def test_problems_have_their_place(file, text, path, message):
    file.write_text(f"{BASE}{text}\n")
    with pytest.raises(InvalidDeclaration) as caught:
        load(file)
    found = {each.path: each.message for each in caught.value.problems}
    assert path in found
    assert message in found[path]
