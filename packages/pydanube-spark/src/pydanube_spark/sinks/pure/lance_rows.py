"""
The columns of LanceDB tables: their values, and vectors.

A vector column is of lists of 32-bit floats that all have the same length.  Spark only
has arrays, whose lengths may differ.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidPayload

_FLOAT_ERRORS = {pa.float64(): 1e-14, pa.float32(): 1e-6}
"""The relative errors of floats that become decimals."""


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


def cast_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """
    Return *rows* with the types of *schema*.

    A float of 32 bits has fewer digits; every other value stays what it is.

    Raises:
        InvalidPayload: A value would become another one.
    """
    try:
        found = rows.cast(schema)
        for name, before, after in zip(
            schema.names, rows.columns, found.columns, strict=True
        ):
            at = _first_other(before, after)
            if at >= 0:
                raise InvalidPayload(
                    f"a row does not fit the table: the column {name} is {after.type}, "
                    f"which cannot store {before[at]}"
                )
    except pa.ArrowInvalid as error:
        raise InvalidPayload(f"a row does not fit the table: {error}") from error
    return found


def _first_other(before: Any, after: Any) -> int:
    """Return the first position whose value the cast has changed; -1 if none."""
    kind = after.type
    if kind == before.type:
        return -1
    if types.is_boolean(kind) and types.is_string(before.type):
        # Arrow refuses text that is no truth value.
        return -1
    if types.is_floating(kind) and types.is_string(before.type):
        before = before.cast(pa.float64())
    if types.is_floating(kind) and types.is_floating(before.type):
        # An infinity took the place of a number that is too large.
        is_other = pc.and_(pc.is_finite(before), pc.invert(pc.is_finite(after)))
    elif types.is_floating(before.type) and types.is_decimal(kind):
        # Sums of floats have small errors.
        allowed = _FLOAT_ERRORS.get(before.type, 0.0)
        error = pc.abs(pc.subtract(before, after.cast(before.type)))
        is_other = pc.greater(error, pc.multiply(pc.abs(before), allowed))
    elif types.is_decimal(before.type) and types.is_floating(kind):
        # As text a float has no more digits than it needs.
        is_other = pc.not_equal(before, after.cast(pa.string()).cast(before.type))
    elif types.is_boolean(kind) or types.is_date(kind):
        # Arrow itself refuses what other casts would change.
        is_other = pc.not_equal(before, after.cast(before.type))
    else:
        return -1
    return int(pc.index(is_other, value=True).as_py())
