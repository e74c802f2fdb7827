"""Filter pushdown: which filters of Spark become conditions."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource as spark

from pydanube_spark.pushdown import condition_of

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "pushed",
    [
        spark.EqualTo(("payload",), b"x"),
        spark.EqualTo(("attributes", "n"), "x"),
        spark.EqualTo(("offset",), "2"),
        spark.EqualTo(("offset",), True),
        spark.EqualTo(("offset",), 2**70),
        spark.EqualTo(("offset",), None),
        spark.EqualTo(("publish_time",), TIME.replace(tzinfo=None)),
        spark.In(("offset",), (1, 1.5)),
        spark.EqualNullSafe(("key",), None),
        spark.StringContains(("offset",), "1"),
    ],
)
def test_unsupported_filter_is_left_to_spark(pushed):
    assert condition_of(pushed) is None
    assert condition_of(spark.Not(pushed)) is None
