"""What the sinks of databases share."""

import pytest

from pydanube.model.errors import Conflict
from pydanube_spark.pure.sink import BatchKey
from pydanube_spark.sinks.pure.staging import (
    check_same_query,
    is_stale,
    literal,
    staging_prefix,
)

KEY = BatchKey("app", 7, "query")


def test_stale_staging_tables_are_found():
    names = [f"{staging_prefix(KEY, 'orders')}{n}_0123abcd" for n in (6, 7, 8)]
    others = [f"{staging_prefix(KEY, 'other')}7_0123abcd", "_danube_user", "x"]
    stale = [name for name in [*names, *others] if is_stale(name, KEY, "orders")]
    assert stale == names[:2]


def test_batch_of_another_query_is_refused():
    check_same_query(KEY, 9, "query")
    with pytest.raises(Conflict, match="up to batch 9, so batch 7 counts as already"):
        check_same_query(KEY, 9, "other")


def test_literals_are_escaped():
    assert literal("a'b") == "'a''b'"
