"""The tests of pipelines with sample rows, on real Spark and without a broker."""

import re

import pytest

pyspark = pytest.importorskip("pyspark")

from pydanube.declarations.problems import InvalidDeclaration  # noqa: E402
from pydanube.pipelines.loading import load  # noqa: E402
from pydanube.pipelines.sample_cases import check_names, load_cases  # noqa: E402
from pydanube.pipelines.sample_runs import run_case  # noqa: E402
from support.project import ROOT  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

PAGE = (ROOT / "docs/guide/pipeline-checks.md").read_text(encoding="utf-8")
PIPELINE, TESTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:2]


def outcomes(spark, tmp_path, pipeline, tests):
    file, cases_file = tmp_path / "orders.yaml", tmp_path / "orders.test.yaml"
    file.write_text(pipeline)
    cases_file.write_text(tests)
    cases = load_cases(cases_file)
    loaded = load(file, parameters=cases.parameter_texts)
    check_names(cases, loaded.spec, cases_file)
    session = spark.newSession()
    return {
        name: run_case(session, loaded, name, case)
        for name, case in cases.tests.items()
    }


def test_example_of_the_guide_passes(spark, tmp_path):
    found = outcomes(spark, tmp_path, PIPELINE, TESTS)
    assert [each.has_passed for each in found.values()] == [True, True], found


def test_differences_and_missing_errors_fail(spark, tmp_path):
    tests = TESTS.replace("{number: 1, country: UK", "{number: 1, country: DE")
    tests = tests.replace("{amount: 1}", "{amount: 1, number: 1}")
    rows, error = outcomes(spark, tmp_path, PIPELINE, tests).values()
    assert rows.differences["large"].missing == [
        {"number": 1, "country": "DE", "amount": 20.5}
    ]
    assert rows.differences["large"].unexpected == [
        {"number": 1, "country": "UK", "amount": 20.5}
    ]
    assert rows.differences.keys() == {"large"}
    assert error.error.startswith("the pipeline did not fail; expected was: the exp")


DECODED = """\
name: decoded
parameters: {minimum: 0}
sources:
  orders:
    topic: /default/orders
    decode: true
    dead_letters: {topic: /default/dead}
  changes: {topic: /default/changes, cdc: debezium, schema: id BIGINT}
steps:
  totals:
    sql: >
      SELECT decode(key, 'utf-8') AS customer, sum(value.amount) AS total,
      max(publish_time) AS last FROM orders GROUP BY key
      HAVING total > ${minimum}
sinks:
  totals: {input: totals, format: danube-delta, path: t, mode: complete}
  changes: {input: changes, format: danube-delta, path: c}
"""

DECODED_TESTS = """\
parameters: {minimum: 5}
tests:
  sums:
    given:
      orders:
        schema: amount DECIMAL(9, 2)
        rows:
          - {key: ada, value: {amount: 2.25}}
          - {key: ada, value: {amount: 4}, publish_time: "2026-02-01T00:00:00Z"}
          - {key: bob, value: {amount: 5}}
          - {payload: "{", _error: not JSON}
      changes:
        - payload: {op: d, ts_ms: 1000, before: {id: 7}}
        - payload: null
    expect:
      totals:
        - {customer: ada, total: 6.25, last: "2026-02-01T00:00:00+00:00"}
      orders.dead_letters:
        - {payload: "{", attributes: {x-original-topic: /default/orders,
           x-original-topic-offset: "3", x-failure-reason: not JSON}}
      changes: [{id: 7, _op: d, _ts: "1970-01-01T00:00:01Z", _offset: 0}]
"""


def test_decoded_messages_and_change_feeds_are_given(spark, tmp_path):
    [found] = outcomes(spark, tmp_path, DECODED, DECODED_TESTS).values()
    assert found.has_passed, found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{amount: 2.25}", "{amount: text}", "the rows that the test gives"),
        ("key: bob", "kez: bob", "unknown column kez; did you mean 'key'"),
        ("schema: amount DECIMAL(9, 2)", "schema: null", "must give the columns of v"),
    ],
)
def test_unusable_rows_are_reported(spark, tmp_path, old, new, words):
    with pytest.raises(InvalidDeclaration, match=re.escape(words)):
        outcomes(spark, tmp_path, DECODED, DECODED_TESTS.replace(old, new))


def test_unknown_column_of_an_expected_row_is_reported(spark, tmp_path):
    tests = DECODED_TESTS.replace("{id: 7, _op", "{idd: 7, _op")
    [found] = outcomes(spark, tmp_path, DECODED, tests).values()
    assert found.error.startswith("changes has no column idd; did you mean 'id'?")
