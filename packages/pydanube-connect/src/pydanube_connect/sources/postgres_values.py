"""The texts of PostgreSQL's values as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pydanube_connect.sources.sql import to_json

ARRAYS = frozenset(
    (
        1000,
        1005,
        1007,
        1016,
        1028,  # Arrays of booleans and integers,
        1021,
        1022,
        1231,  # of floats and numerics,
        1009,
        1014,
        1015,
        2951,  # of texts and UUIDs,
        1115,
        1182,
        1183,
        1185,  # of times,
        199,
        3807,  # of JSON.
    )
)
LOADED = ARRAYS | {114, 3802}  # JSON.
"""The types that psycopg parses, by their identifiers, the same in all versions."""

Decode = Callable[[str], Any]


def decoder_of(type_id: int) -> Decode:
    """
    Return the function that turns the text of a value into a JSON value.

    Numbers of arbitrary precision, and types that JSON does not have, stay texts.
    """
    if type_id in LOADED:
        return _loaded(type_id)
    return _DECODERS.get(type_id, str)


def _is_true(text: str) -> bool:
    return text == "t"


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _timestamp(text: str) -> str:
    """Return a time in the format of ISO 8601, with ``T``."""
    return text.replace(" ", "T", 1) if text[:1].isdigit() else text


def _loaded(type_id: int) -> Decode:
    from psycopg import DataError  # noqa: PLC0415
    from psycopg.adapt import Transformer  # noqa: PLC0415
    from psycopg.pq import Format  # noqa: PLC0415

    loader: Any = Transformer().get_loader(type_id, Format.TEXT)

    def load(text: str) -> Any:
        if type_id in ARRAYS and text.startswith("["):
            return text  # It begins at another number than 1, as in '[0:1]={1,2}'.
        try:
            return to_json(loader.load(text.encode()))
        except (ValueError, ArithmeticError, DataError):
            return text  # Such as a time that Python does not have.

    return load


_DECODERS: dict[int, Decode] = {
    16: _is_true,
    **dict.fromkeys((20, 21, 23, 26), int),
    **dict.fromkeys((700, 701), _float),
    **dict.fromkeys((1114, 1184), _timestamp),
}
"""By the identifier of the type: bool, int8, int2, int4, oid, floats, times."""
