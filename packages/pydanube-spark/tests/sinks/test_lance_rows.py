"""Tests of vector columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload
from pydanube_spark.sinks.pure.lance_rows import is_numbers, to_vectors, vector_type

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
