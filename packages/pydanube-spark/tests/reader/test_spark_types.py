"""Arrow columns as Spark has them."""

from datetime import UTC, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.reader.pure.spark_types import converter, spark_type


def fit(array, wanted, *, allows_missing=False):
    found = converter(array.type, wanted, allows_missing=allows_missing)(array)
    found.validate(full=True)
    assert found.type.equals(wanted)
    return found.to_pylist()


@pytest.mark.parametrize(
    ("has", "values", "expected"),
    [
        (pa.uint64(), [2**64 - 1, None], [Decimal(2**64 - 1), None]),
        (pa.uint32(), [2**32 - 1, None], [2**32 - 1, None]),
        (pa.null(), [None], [None]),
        (pa.binary(2), [b"ab", None], [b"ab", None]),
        (pa.time32("ms"), [time(1, 2, 3)], ["01:02:03.000"]),
        (pa.struct([]), [{}, None], ["{}", None]),
        (
            pa.timestamp("ms", "UTC"),
            [datetime(2026, 1, 1, tzinfo=UTC)],
            [datetime(2026, 1, 1, tzinfo=UTC)],
        ),
        (pa.list_(pa.uint32()), [[1, None], None, []], [[1, None], None, []]),
        (
            pa.map_(pa.string(), pa.list_(pa.uint32())),
            [[("a", [1])], None, []],
            [[("a", [1])], None, []],
        ),
        (
            pa.struct({"a": pa.uint32(), "b": pa.struct({"c": pa.null()})}),
            [{"a": 1, "b": None}, None, {"a": None, "b": {"c": None}}],
            [{"a": 1, "b": None}, None, {"a": None, "b": {"c": None}}],
        ),
    ],
)
def test_every_arrow_type_has_a_spark_type(has, values, expected):
    array = pa.array(values, has)
    assert fit(array, spark_type(has)) == expected
    doubled = pa.concat_arrays([array, array])
    assert fit(doubled.slice(len(array)), spark_type(has)) == expected


def test_supported_types_do_not_change():
    array = pa.array([{"a": 1, "b": "x"}])
    assert spark_type(array.type) == array.type
    assert converter(array.type, array.type, allows_missing=False)(array) is array


def test_unwanted_fields_are_dropped():
    array = pa.array([{"a": 1, "b": "x"}, None])
    assert fit(array, pa.struct({"b": pa.string()})) == [{"b": "x"}, None]


def test_missing_fields_are_null_only_if_allowed():
    array = pa.array([{"a": 1}])
    wanted = pa.struct({"b": pa.list_(pa.string()), "a": pa.int64()})
    assert fit(array, wanted, allows_missing=True) == [{"b": None, "a": 1}]
    with pytest.raises(InvalidRequest, match=r"there is no value\.b; value has a"):
        converter(array.type, wanted, allows_missing=False)


@pytest.mark.parametrize(
    ("has", "wanted", "value", "expected"),
    [
        (pa.int32(), pa.int64(), 7, 7),
        (pa.int64(), pa.float64(), 2**60 + 1, float(2**60)),
        (pa.float32(), pa.float64(), 0.5, 0.5),
        (pa.string(), pa.binary(), "é", "é".encode()),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), Decimal("1.25"), Decimal("1.250")),
    ],
)
def test_wider_types_are_taken(has, wanted, value, expected):
    assert fit(pa.array([value, None], has), wanted) == [expected, None]


def test_value_too_large_for_a_narrower_type_is_refused():
    narrow = converter(pa.int64(), pa.int32(), allows_missing=False)
    assert narrow(pa.array([7])).to_pylist() == [7]
    with pytest.raises(pa.ArrowInvalid):
        narrow(pa.array([2**40]))


@pytest.mark.parametrize(
    ("has", "wanted", "message"),
    [
        (
            pa.string(),
            pa.int64(),
            "value is of type string and cannot be read as int64",
        ),
        (
            pa.struct({"a": pa.list_(pa.struct({"b": pa.string()}))}),
            pa.struct({"a": pa.list_(pa.struct({"b": pa.int64()}))}),
            r"value\.a\[\]\.b is of type string",
        ),
        (pa.struct({"a": pa.int64()}), pa.string(), "cannot be read as string"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "cannot be read"),
    ],
)
def test_incompatible_type_is_refused_with_its_path(has, wanted, message):
    with pytest.raises(InvalidRequest, match=message):
        converter(has, wanted, allows_missing=True)
