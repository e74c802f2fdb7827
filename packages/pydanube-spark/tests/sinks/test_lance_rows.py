"""Tests of vector columns."""

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload
from pydanube_spark.sinks.pure.lance_rows import (
    cast_rows,
    is_numbers,
    to_vectors,
    vector_type,
)

DAY, TIME = pa.date32(), pa.timestamp("us")
vectors = st.none() | st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
)


@settings(deadline=None)
@given(st.lists(vectors, max_size=8), st.integers(0, 8))
def test_vectors_have_the_values_of_their_lists(rows, base):
    column = pa.array(rows, pa.list_(pa.float64())).slice(base)
    found = to_vectors(column, 3, "v")
    assert found.type == vector_type(3)
    assert found.to_pylist() == rows[base:]


@pytest.mark.parametrize("other", [[], [1.0], [1.0, 2.0, 3.0]])
def test_vector_of_wrong_length_is_refused(other):
    column = pa.array([[1.0, 2.0], None, other])
    with pytest.raises(InvalidPayload, match=f"has {len(other)} numbers instead of 2"):
        to_vectors(column, 2, "v")


@pytest.mark.parametrize("number", [None, float("nan"), float("inf")])
def test_null_and_nan_are_refused(number):
    with pytest.raises(InvalidPayload, match="null, NaN or infinity"):
        to_vectors(pa.array([[1.0, number]]), 2, "v")


def test_number_arrays_can_be_vectors():
    assert is_numbers(pa.list_(pa.int32()))
    assert not is_numbers(pa.list_(pa.string()))
    assert not is_numbers(pa.float32())


@pytest.mark.parametrize(
    ("has", "to", "fits", "wrong"),
    [
        (pa.float64(), pa.float32(), [0.1, float("inf"), 5e-324], 1e300),
        (pa.float64(), pa.decimal128(10, 2), [0.29, -0.0, 0.1 + 0.2], 0.255),
        (pa.float32(), pa.decimal128(10, 2), [0.25, 0.1], 0.255),
        (pa.float64(), pa.bool_(), [0.0, 1.0], 0.5),
        (pa.float64(), pa.int64(), [2.0], 1.5),
        (pa.decimal128(38, 0), pa.float64(), [Decimal(5)], Decimal("9" * 38)),
        (
            pa.decimal128(12, 3),
            pa.decimal128(10, 2),
            [Decimal("1.230")],
            Decimal("1.239"),
        ),
        (pa.int64(), pa.bool_(), [0, 1], 5),
        (pa.int64(), pa.float64(), [2**53], 2**53 + 1),
        (TIME, DAY, [datetime(1969, 12, 31)], datetime(1969, 12, 31, 1)),  # noqa: DTZ001
        (pa.string(), pa.float32(), ["0.10", "inf"], "1e300"),
        (
            pa.decimal128(38, 18),
            pa.float64(),
            [Decimal("0.1"), Decimal("123.456"), Decimal(-1)],
            Decimal("0.123456789012345678"),
        ),
        (pa.string(), pa.int8(), ["7"], "300"),
        (pa.string(), pa.bool_(), ["1", "TRUE", "false"], "x"),
    ],
)
def test_values_that_a_cast_would_change_are_refused(has, to, fits, wrong):
    schema = pa.schema({"v": to})

    def cast(*values):
        rows = pa.record_batch({"v": pa.array(values, has)})
        return cast_rows(rows, schema).column("v")

    assert cast(None, *fits).type == to
    with pytest.raises(InvalidPayload, match="a row does not fit the table: "):
        cast(None, *fits, wrong)
