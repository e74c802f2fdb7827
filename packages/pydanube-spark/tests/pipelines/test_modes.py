"""Tests of the modes that sinks support, and of the writes of single micro-batches."""

import pytest

from pydanube_spark.formats import SINKS
from pydanube_spark.pipelines.pure.modes import mode_problem, write_mode
from pydanube_spark.pipelines.pure.spec import Mode

REFUSED = [
    ("danube-delta", Mode.UPDATE, {}, "beside the old ones; set table: {key: …}"),
    ("danube-iceberg", Mode.UPDATE, {}, "set table: {key: …}"),
    ("danube-postgres", Mode.UPDATE, {}, "set table: {key: …}"),
    ("danube-postgres", Mode.UPDATE, {"keyColumns": " "}, "set table: {key: …}"),
    ("danube-lancedb", Mode.UPDATE, {}, "set table: {key: …}"),
    ("danube-delta", Mode.COMPLETE, {"keyColumns": "k"}, "omit the key"),
    ("danube-iceberg", Mode.OVERWRITE, {"KeyColumns": "k"}, "omit the key"),
    ("danube-clickhouse", Mode.UPDATE, {}, "ReplacingMergeTree"),
    ("danube-clickhouse", Mode.UPDATE, {"engine": "MergeTree"}, "ReplacingMergeTree"),
    ("jdbc", Mode.UPDATE, {}, "use danube-delta"),
    ("csv", Mode.UPDATE, {}, "danube-postgres"),
    ("csv", Mode.COMPLETE, {}, "only append"),
    ("danube", Mode.COMPLETE, {}, "rows can only be appended to a topic"),
    ("danube", Mode.OVERWRITE, {}, "rows can only be appended to a topic"),
    ("danube-clickhouse", Mode.OVERWRITE, {}, "mode: append"),
    ("danube-lancedb", Mode.COMPLETE, {}, "mode: append"),
]


@pytest.mark.parametrize(("name", "mode", "options", "words"), REFUSED)
def test_mode_that_would_leave_stale_rows_is_refused(name, mode, options, words):
    assert words in mode_problem(name, mode, options)


ALLOWED = [
    ("danube", Mode.UPDATE, {}),
    ("danube-postgres", Mode.UPDATE, {"KEYCOLUMNS": "customer"}),
    ("danube-lancedb", Mode.UPDATE, {"keyColumns": "customer"}),
    ("danube-clickhouse", Mode.UPDATE, {"engine": "ReplicatedReplacingMergeTree(v)"}),
    ("danube-delta", Mode.UPDATE, {"keyColumns": "customer"}),
    ("danube-iceberg", Mode.UPDATE, {"keyColumns": "customer"}),
    ("danube-delta", Mode.COMPLETE, {}),
    ("danube-postgres", Mode.COMPLETE, {}),
    ("jdbc", Mode.COMPLETE, {}),
    ("jdbc", Mode.OVERWRITE, {}),
    ("parquet", Mode.OVERWRITE, {}),
    ("console", Mode.UPDATE, {}),
    ("format-of-a-jar", Mode.UPDATE, {}),
]


@pytest.mark.parametrize(("name", "mode", "options"), ALLOWED)
def test_mode_that_the_sink_supports_is_allowed(name, mode, options):
    assert mode_problem(name, mode, options) is None


@pytest.mark.parametrize("name", sorted(SINKS))
def test_every_own_format_can_append(name):
    assert mode_problem(name, Mode.APPEND, {}) is None


def test_whole_aggregate_replaces_the_rows_of_the_last_micro_batch():
    assert write_mode(Mode.COMPLETE) == "overwrite"
    assert write_mode(Mode.UPDATE) == write_mode(Mode.APPEND) == "append"
