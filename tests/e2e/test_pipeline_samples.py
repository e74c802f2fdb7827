"""The tests of pipelines with sample rows, on real Spark and without a broker."""

import json
import re

import pytest

pyspark = pytest.importorskip("pyspark")

from pydanube.declarations.pure.problems import InvalidDeclaration  # noqa: E402
from pydanube_spark.pipelines.loading import load  # noqa: E402
from pydanube_spark.pipelines.sample_cases import check_names, load_cases  # noqa: E402
from pydanube_spark.pipelines.sample_runs import run_case  # noqa: E402
from support.project import ROOT  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

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
  documents:
    topic: /default/documents
    cdc: debezium-mongodb
    decode: true
    schema: _id STRING, n BIGINT
steps:
  totals:
    sql: >
      SELECT decode(key, 'utf-8') AS customer, sum(value.amount) AS total,
      max(publish_time) AS last FROM orders GROUP BY key
      HAVING total > ${minimum}
sinks:
  totals: {input: totals, format: danube-delta, path: t, mode: complete}
  changes: {input: changes, format: danube-delta, path: c}
  documents: {input: documents, format: danube-delta, path: d}
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
      documents:
        schema: after STRING, op STRING, ts_ms BIGINT
        rows:
          - {payload: x, value: {op: c, after: '{"_id": {"$oid": "a"}, "n": 5}'}}
          - {payload: x, value: {op: d}, key: '{"id": "\\"b\\""}'}
          - {payload: null, _error: it is empty}
    expect:
      documents: [{_id: a, n: 5, _op: c}, {_id: b, n: null, _op: d}]
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


FEED = """\
name: feed
sources:
  rows:
    topic: /default/changes
    cdc: debezium
    schema: id BIGINT, name STRING, doc STRING, raw BINARY, tags ARRAY<STRING>, n INT
    optional_columns: [n, old]
    dead_letters: {topic: /default/dead}
sinks:
  kept:
    input: rows
    format: danube-delta
    path: t
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'"}
  added: {input: rows, format: danube-delta, path: a}
"""

FEED_TESTS = """\
tests:
  large values:
    given:
      rows:
        - payload: {op: u, ts_ms: 1, after: {id: 1, name: a, n: 1, old: 2, doc:
            __debezium_unavailable_value, raw: X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==,
            tags: [__debezium_unavailable_value]}}
        - payload: {op: d, ts_ms: 1, before: {id: 2}}
        - payload: {op: u, ts_ms: 1, after: {id: 3, doc: null, raw: QQ==, tags: [b],
            name: 'the text "__debezium_unavailable_value'}}
    expect:
      kept:
        - {id: 1, name: a, doc: null, raw: null, tags: null, n: 1, _op: u,
           _unavailable: [doc, raw, tags], _deleted: false}
        - {id: 2, name: null, _op: d, _unavailable: [], _deleted: true}
        - {id: 3, name: 'the text "__debezium_unavailable_value', raw: A, tags: [b],
           n: null, _op: u, _unavailable: [], _deleted: false}
  no events:
    given:
      rows:
        - {payload: "{"}
        - {payload: "[]"}
        - payload: {op: x, after: {id: 1}}
        - payload: {op: u, before: {id: 1}, after: null}
        - payload: {op: c, after: {id: 1, title: a, doc: b, raw: "", tags: []}}
        - payload: {op: c, after: {id: 1, doc: b, raw: "", tags: []}}
        - payload: {op: r, after: {id: 1, name: a, doc: b, raw: "", tags: [], x: 1}}
        - payload: {op: r, after: {id: a, name: a, doc: b, raw: "", tags: []}}
        - payload: {op: c, after: {id: 1, name: a, raw: "", tags: [],
            doc: __debezium_unavailable_value}}
        - {payload: ""}
        - payload: {op: m}
        - payload: {op: r, ts_ms: 2, after: {id: 5, name: a, doc: b, raw: "",
            tags: []}}
    expect:
      rows: [{id: 5, name: a, doc: b, raw: "", tags: [], n: null, _op: r}]
      rows.dead_letters:
"""
NO_EVENTS = [
    "it is no change of a row by Debezium",
    "it is no change of a row by Debezium",
    "it is no change of a row by Debezium: its operation is x",
    "it is no change of a row by Debezium: it has no row",
    (
        "the row has the column title, and not name of the schema; if it was renamed, "
        "correct the schema, and name the other one in optional_columns"
    ),
    (
        "the row has no column name; remove it from the schema, or name it in "
        "optional_columns, which makes it null"
    ),
    (
        "the row has the column x; add it to the schema, or name it in "
        "optional_columns, which drops it"
    ),
    "the column id is a, which is no bigint",
    (
        "the value of the large column doc is not in the event of the new row: set "
        "REPLICA IDENTITY FULL for the table"
    ),
]


def test_change_feed_keeps_what_events_lack_and_says_what_is_none(spark, tmp_path):
    letters = "".join(
        "        - attributes: {x-original-topic: /default/changes, "
        f'x-original-topic-offset: "{at}", x-failure-reason: "{reason}"}}\n'
        for at, reason in enumerate(NO_EVENTS)
    )
    found = outcomes(spark, tmp_path, FEED, FEED_TESTS + letters)
    assert [each.has_passed for each in found.values()] == [True, True], found


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (
            "{op: c, after: {id: 1, old: b}}",
            "offset 0 of /default/changes: the row has",
        ),
        ('"{"', "offset 0 of /default/changes: it is no change"),
        ("{op: t}", "offset 0 of /default/changes truncates"),
        ("{id: 1, ts_ms: 2}", "offset 0 of /default/changes: it is no change"),
        (
            "{op: u, after: {id: 1, name: __debezium_unavailable_value}}",
            "has no value for the column name",
        ),
    ],
)
def test_events_that_are_no_rows_fail_the_query(spark, tmp_path, payload, words):
    pipeline = """\
name: feed
sources:
  rows: {topic: /default/changes, cdc: debezium, schema: "id BIGINT, name STRING"}
steps: {all: {sql: SELECT * FROM rows}}
sinks: {added: {input: all, format: danube-delta, path: a}}
"""
    tests = f"""\
tests:
  fails: {{given: {{rows: [{{payload: {payload}}}]}}, error: "{words}"}}
"""
    [found] = outcomes(spark, tmp_path, pipeline, tests).values()
    assert found.has_passed, found
    if "value" in words:
        null = pipeline.replace("cdc:", "unavailable_as_null: true, cdc:")
        tests = tests.replace("error:", "expect: {added: [{id: 1, name: null}]}} #")
        [found] = outcomes(spark, tmp_path, null, tests).values()
        assert found.has_passed, found


CONTROL = """\
name: feed
sources:
  rows:
    topic: /default/changes
    cdc: debezium
    schema: id BIGINT
    truncate: ignore
sinks:
  added: {input: rows, format: danube-delta, path: a}
"""

CONTROL_TESTS = """\
tests:
  records about Debezium:
    given:
      rows:
        - payload: {ts_ms: 1}
        - payload: {schema: {type: struct}, payload: {ts_ms: 1}}
        - payload: {status: BEGIN, id: "571:53195829", ts_ms: 1, event_count: null,
            data_collections: null}
        - payload: {schema: {}, payload: {status: END, id: "5", event_count: 2,
            data_collections: [{data_collection: a, event_count: 2}]}}
        - payload: {source: {db: shop}, databaseName: shop,
            ddl: "CREATE TABLE a (b INT)", tableChanges: []}
        - payload: {op: t, ts_ms: 1, before: null, after: null}
        - payload: {op: r, ts_ms: 2, after: {id: 5}}
    expect:
      added: [{id: 5, _op: r}]
"""


def test_records_that_debezium_writes_about_itself_are_skipped(spark, tmp_path):
    [found] = outcomes(spark, tmp_path, CONTROL, CONTROL_TESTS).values()
    assert found.has_passed, found
    # A truncation is a row if it is applied.
    applied = CONTROL.replace("truncate: ignore", "truncate: apply")
    truncation = "{id: null, _op: t, _ts: '1970-01-01T00:00:00.001Z', _offset: 5}"
    tests = CONTROL_TESTS.replace("_op: r}]", f"_op: r}}, {truncation}]")
    tests = tests.replace("{id: 5, _op: r}", "{id: 5, _op: r, _ts: null, _offset: 6}")
    tests = tests.replace("_ts: null", "_ts: '1970-01-01T00:00:00.002Z'")
    [found] = outcomes(spark, tmp_path, applied, tests).values()
    assert found.has_passed, found


DOCUMENTS = """\
name: feed
sources:
  rows:
    topic: /default/changes
    cdc: debezium-mongodb
    schema: _id STRING, name STRING, n BIGINT, at BIGINT, price STRING, raw BINARY,
      tags ARRAY<BIGINT>, inner STRUCT<x:DOUBLE, y:DOUBLE>
    optional_columns: [old]
    dead_letters: {topic: /default/dead}
sinks:
  kept:
    input: rows
    format: danube-delta
    path: t
    table: {key: _id, order: [_ts, _offset], delete: "_op = 'd'"}
"""


def document(**fields):
    return json.dumps(fields)


def documents_tests():
    whole = document(
        _id={"$oid": "596e275826f08b2730779e1f"},
        name='the text {"$oid": "a"} and {"$numberLong": "5',
        n={"$numberLong": "9007199254740993"},
        at={"$date": {"$numberLong": "1500000000000"}},
        price={"$numberDecimal": "1.50"},
        raw={"$binary": {"base64": "QUI=", "subType": "00"}},
        tags=[{"$numberInt": "1"}, 2],
        inner={"x": {"$numberDouble": "-1.5E3"}, "y": {"$numberDouble": "-Infinity"}},
    )
    older = document(
        _id="b", at={"$date": 7}, raw={"$binary": "QUI=", "$type": "00"}, old=1
    )
    rows = [
        {"payload": {"op": "c", "ts_ms": 1, "before": None, "after": whole}},
        {"payload": {"schema": {}, "payload": {"op": "r", "ts_ms": 1, "after": older}}},
        {
            "payload": {"op": "d", "ts_ms": 1, "before": None, "after": None},
            "key": json.dumps({"payload": {"id": document(**{"$oid": "f00d"})}}),
        },
        {
            "payload": {"op": "d", "before": None, "after": None},
            "key": '{"id": "\\"b\\""}',
        },
        {"payload": "", "key": '{"id": "\\"b\\""}'},
        {"payload": {"ts_ms": 1}},
        {
            "payload": {
                "op": "u",
                "after": None,
                "updateDescription": {"updatedFields": document(n=1)},
            }
        },
        {"payload": {"op": "u", "patch": document(**{"$set": {"n": 1}})}},
        {"payload": {"op": "d", "before": None}, "key": "no JSON"},
        {"payload": {"op": "c", "after": document(_id="c", more=1)}},
        {"payload": {"op": "c", "after": document(_id="c", n="one")}},
        {"payload": {"op": "c", "after": "{no JSON"}},
        {"payload": "{"},
    ]
    missing = dict.fromkeys(("name", "n", "at", "price", "raw", "tags", "inner"))
    kept = [
        {
            "_id": "596e275826f08b2730779e1f",
            "name": 'the text {"$oid": "a"} and {"$numberLong": "5',
            "n": 9007199254740993,
            "at": 1500000000000,
            "price": "1.50",
            "raw": "AB",
            "tags": [1, 2],
            "inner": {"x": -1500.0, "y": "-Infinity"},
            "_op": "c",
            "_deleted": False,
        },
        {**missing, "_id": "b", "at": 7, "raw": "AB", "_op": "r", "_deleted": False},
        {**missing, "_id": "f00d", "_op": "d", "_deleted": True},
        {**missing, "_id": "b", "_op": "d", "_deleted": True},
    ]
    update = (
        "it is no change of a row by Debezium: it has no document. Set "
        "capture.mode=change_streams_update_full in Debezium; with it, documents are "
        "missing only if they were deleted at once"
    )
    letters = {
        6: update,
        7: update,
        8: (
            "it is the deletion of a document without its _id: the message needs the "
            "key that Debezium gives it, in JSON"
        ),
        9: (
            "the row has the column more; add it to the schema, or name it in "
            "optional_columns, which drops it"
        ),
        10: "the column n is one, which is no bigint",
        11: "it is no change of a row by Debezium",
        12: "it is no change of a row by Debezium",
    }
    dead = [
        {
            "attributes": {
                "x-original-topic": "/default/changes",
                "x-original-topic-offset": str(at),
                "x-failure-reason": reason,
            }
        }
        for at, reason in letters.items()
    ]
    expected = {"kept": kept, "rows.dead_letters": dead}
    case = {"given": {"rows": rows}, "expect": expected}
    # JSON is YAML.
    return json.dumps({"tests": {"documents": case}})


def test_documents_of_mongodb_are_rows_of_plain_values(spark, tmp_path):
    [found] = outcomes(spark, tmp_path, DOCUMENTS, documents_tests()).values()
    assert found.has_passed, found
