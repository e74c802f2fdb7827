"""Tests of the choice of each key's latest row."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.sinks.latest import latest_rows

rows = st.tuples(
    st.integers(0, 3), st.sampled_from("ab"), st.none() | st.integers(0, 3)
)


def table(rows):
    ids, names, times = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(names, pa.string()),
            "at": pa.array(times, pa.int64()),
        }
    )


@settings(deadline=None)
@given(st.lists(st.lists(rows, max_size=8), min_size=1, max_size=4), st.booleans())
def test_each_key_has_exactly_its_latest_row(outputs, is_ordered):
    order = ["at"] if is_ordered else []
    masks = latest_rows([table(each) for each in outputs], ["id", "name"], order)
    best = {}
    for piece, each in enumerate(outputs):
        for row, (number, name, at) in enumerate(each):
            time = (-1 if at is None else at) if is_ordered else 0
            place = (time, piece, row)
            best[number, name] = max(place, best.get((number, name), place))
    found = {
        (piece, row)
        for piece, mask in enumerate(masks)
        for row, is_last in enumerate(mask)
        if is_last
    }
    assert found == {place[1:] for place in best.values()}
