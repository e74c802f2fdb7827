"""How far a query is behind."""

import json
from types import SimpleNamespace

from pydanube_spark.pure.query_lag import lag
from pydanube_spark.reader.pure.query_positions import Position, to_json

A, B = "/default/a", "/default/b-part-0"


def source(done, latest):
    return {"endOffset": json.dumps(done), "latestOffset": json.dumps(latest)}


def test_lag_is_latest_offset_minus_end_offset():
    done = to_json({A: Position(1, 10), B: Position(2, 5)})
    latest = to_json({A: Position(1, 12), B: Position(2, 5)})
    assert lag({"sources": [source(done, latest)]}) == {A: 2, B: 0}
    as_object = SimpleNamespace(sources=[SimpleNamespace(**source(done, latest))])
    assert lag(as_object) == {A: 2, B: 0}


def test_lag_of_new_or_recreated_topic_counts_from_its_beginning():
    done = to_json({A: Position(1, 10)})
    latest = to_json({A: Position(9, 3), B: Position(2, 5)})
    assert lag({"sources": [source(done, latest)]}) == {A: 3, B: 5}


def test_lag_ignores_other_sources():
    assert lag(None) == {}
    other = [
        {"endOffset": '{"t":{"0":5}}', "latestOffset": '{"t":{"0":9}}'},
        {"endOffset": "7", "latestOffset": "null"},
        {"endOffset": None, "latestOffset": "no JSON"},
        {"endOffset": 5, "latestOffset": '{"version": 99}'},
        {"endOffset": "x", "latestOffset": {"a": 1}},
        {},
    ]
    assert lag({"sources": other}) == {}
