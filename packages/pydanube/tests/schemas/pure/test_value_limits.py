"""Tests of the values that systems can store."""

import datetime as dt
import math

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.pure.value_limits import (
    JSON,
    ValueLimits,
    check_values,
    years_limits,
)

UNICODE = ValueLimits(name="the system")
BYTES = ValueLimits(name="the system", has_broken_text=True)
SHAPES = {
    "plain": (pa.binary(), pa.string(), lambda text: text),
    "list": (
        pa.list_(pa.binary()),
        pa.list_(pa.string()),
        lambda text: [b"a", None, text],
    ),
    "map": (
        pa.map_(pa.binary(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
        lambda text: [(b"a", text), (b"b", None)],
    ),
    "struct": (
        pa.struct([("x", pa.list_(pa.binary()))]),
        pa.struct([("x", pa.list_(pa.string()))]),
        lambda text: {"x": [text]},
    ),
}


def is_utf8(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def texts(values, shape):
    """A column of texts with these bytes, inside of a type."""
    raw, kind, wrap = SHAPES[shape]
    wrapped = [None if each is None else wrap(each) for each in values]
    how = pa.compute.CastOptions(target_type=kind, allow_invalid_utf8=True)
    return pa.array(wrapped, raw).cast(options=how)


@given(
    values=st.lists(st.none() | st.text().map(str.encode) | st.binary(), max_size=6),
    shape=st.sampled_from(list(SHAPES)),
    cut=st.integers(0, 2),
)
def test_the_first_text_that_is_not_utf8_is_named(values, shape, cut):
    column = texts(values, shape)[cut:]
    rows = pa.record_batch({"id": pa.array(range(len(column))), "text": column})
    check_values(rows, BYTES)
    check_values(rows, UNICODE, unchecked=["text"])
    broken = [at for at, each in enumerate(values[cut:]) if each and not is_utf8(each)]
    if not broken:
        check_values(rows, UNICODE)
        return
    with pytest.raises(
        InvalidPayload, match=rf"^the column text\S* of row {10 + broken[0]} is b"
    ):
        check_values(rows, UNICODE, 10)


def test_a_row_is_named_by_its_other_columns_also_if_they_are_broken():
    rows = pa.record_batch(
        {"real": pa.array([1.5, math.nan]), "text": texts([b"a", b"\xff"], "plain")}
    )
    with pytest.raises(InvalidPayload, match=r"of row 1 is nan: .*text=b'\\xff'"):
        check_values(rows, JSON)


def test_times_beyond_the_years_of_a_system_are_named():
    first, after = dt.date(1, 1, 1), dt.date(9999, 12, 31)
    rows = pa.record_batch({"day": pa.array([first, after, None])})
    check_values(rows, years_limits("the system"))
    days = rows.column(0).cast(pa.int32())
    next_days = pa.compute.add(days, 1).cast(pa.int32()).cast(pa.date32())
    later = pa.record_batch({"day": next_days})
    check_values(later, UNICODE)
    with pytest.raises(InvalidPayload, match="of row 1 is 10000-01-01"):
        check_values(later, years_limits("the system"))


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (b"a" * 5000 + b"\xff" + b"b" * 5000, r"a{30}\\xffb{29}' \(from byte 4970 of"),
        (b"\xff" * 10_000, r"b'(\\xff){60}' \(from byte 0 of 10000\)"),
        (b"a" * 10_000 + b"\xff", r"b'a{59}\\xff' \(from byte 9941 of 10001\)"),
    ],
)
def test_an_error_shows_a_part_of_a_long_text(bad, shown):
    """It is sent through Spark, and kept in the status of a pipeline."""
    rows = pa.record_batch({"text": texts([b"ok", bad], "plain")})
    with pytest.raises(InvalidPayload, match=shown) as refused:
        check_values(rows, UNICODE)
    assert len(str(refused.value)) < 600


def test_an_error_shows_a_part_of_a_long_text_with_nul():
    limits = ValueLimits(name="the system", has_nul=False)
    rows = pa.record_batch({"text": pa.array(["a" * 10_000 + "\0"])})
    with pytest.raises(InvalidPayload, match=r"of row 0 is 'a+…: text in the sys"):
        check_values(rows, limits)
