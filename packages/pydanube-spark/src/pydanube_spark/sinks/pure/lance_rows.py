"""
The vector columns of LanceDB tables.

A vector column is of lists of 32-bit floats that all have the same length.  Spark only
has arrays, whose lengths may differ.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidPayload


def is_numbers(kind: pa.DataType) -> bool:
    """Return whether values of the type *kind* can be vectors."""
    if not pa.types.is_list(kind):
        return False
    of = kind.value_type
    return bool(pa.types.is_floating(of) or pa.types.is_integer(of))


def vector_type(dimension: int) -> pa.DataType:
    """Return the type of vectors with *dimension* numbers."""
    return pa.list_(pa.float32(), dimension)


def to_vectors(column: Any, dimension: int, name: str) -> Any:
    """
    Return the lists of *column* as vectors; null stays null.

    Raises:
        InvalidPayload: A list has another length, or a null, NaN or infinity in it.
    """
    lengths = pc.list_value_length(column)
    wrong = pc.indices_nonzero(pc.fill_null(pc.not_equal(lengths, dimension), False))
    if len(wrong):
        found = lengths[wrong[0].as_py()]
        raise InvalidPayload(
            f"{name}: a vector has {found} numbers instead of {dimension}; check the "
            "option dimension and the model that made the vector"
        )
    numbers = pc.list_flatten(column).cast(pa.float32())
    if not pc.all(pc.fill_null(pc.is_finite(numbers), False), min_count=0).as_py():
        raise InvalidPayload(f"{name}: a vector has a null, NaN or infinity in it")
    return column.cast(vector_type(dimension))
