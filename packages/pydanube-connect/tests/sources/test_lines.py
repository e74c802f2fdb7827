"""Tests of the lines of a text that arrives in blocks."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.sources.pure.lines import InvalidCsv, LineSplitter, csv_cells

TEXTS = st.text(st.sampled_from('ab,"\n;\r'), max_size=8)


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=6), st.data())
def test_rows_are_those_that_were_written(rows, data):
    """However the text is divided, and from each row on."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    content = text.getvalue().encode()
    size = data.draw(st.integers(1, 20))
    splitter = LineSplitter(0, 1000, is_quoted=True)
    found = [
        line
        for at in range(0, len(content), size)
        for line in splitter.feed(content[at : at + size])
    ]
    assert splitter.end() is None
    lines = [line.removesuffix(b"\r") for _, line, _ in found]
    assert [csv_cells(each, ",") for each in lines] == rows
    for number, (_, _, end) in enumerate(found):
        rest = [
            line
            for _, line, _ in LineSplitter(end, 1000, is_quoted=True).feed(
                content[end:]
            )
        ]
        assert [each.removesuffix(b"\r") for each in rest] == lines[number + 1 :]


def test_a_long_line_is_cut_and_counts_as_a_whole():
    splitter = LineSplitter(5, 3)
    found = [
        line for block in (b"abc", b"defg", b"h\nxy") for line in splitter.feed(block)
    ]
    assert found == [(5, b"abcd", 14)]
    assert splitter.end() == (14, b"xy", 16)


@pytest.mark.parametrize("row", [b'a"b', b'"a"b,c', b'"a', b'"a""', b"\xff"])
def test_a_row_with_other_quotation_marks_is_invalid(row):
    with pytest.raises(InvalidCsv):
        csv_cells(row, ",")


@given(st.text(st.sampled_from('",a'), max_size=200))
def test_cells_have_all_characters(row):
    try:
        cells = csv_cells(row.encode(), ",")
    except InvalidCsv:
        return
    assert cells == (next(csv.reader([row])) or [""])
