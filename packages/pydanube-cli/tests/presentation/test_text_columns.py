"""Columns fit the terminal, and words stay whole while there is room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pydanube_cli.presentation.text_columns import (
    GAP,
    WIDTH_MIN,
    column_widths,
    lay_out,
    wrap,
)

NAME = "/production/orders-of-the-european-warehouse"


def laid_out(width, *rows):
    lines = lay_out(rows, width, [False] * len(rows[0]))
    return [line for row in lines for line in row]


def test_columns_are_as_wide_as_their_cells():
    assert laid_out(80, ("Topic", "Kind"), ("/default/a", "reliable")) == [
        "Topic       Kind",
        "/default/a  reliable",
    ]


def test_other_columns_are_wrapped_before_a_name_is_broken():
    row = (NAME, "reliable, 4 partitions", "none")
    lines = laid_out(70, ("Topic", "Kind", "Blocked"), row)
    assert all(len(line) <= 70 for line in lines)
    assert any(line.startswith(NAME) for line in lines)


def test_a_heading_is_wrapped_between_words():
    head, more, _ = laid_out(20, ("Subscription", "Acked before"), ("billing", "17"))
    assert head == "Subscription  Acked"
    assert more == "              before"


def test_only_the_widest_column_is_broken_inside_a_word():
    lines = laid_out(40, ("Topic", "Type"), (NAME, "key-shared"))
    assert all(len(line) <= 40 for line in lines)
    assert sum("key-shared" in line for line in lines) == 1
    assert "".join(line.split("  ")[0].strip() for line in lines[1:]) == NAME


def test_unit_stays_on_the_line_of_its_number():
    lines = laid_out(30, ("Topic", "Size"), (NAME, "29.8 MiB"), (NAME, "832 B"))
    assert all(len(line) <= 30 for line in lines)
    assert sum("29.8 MiB" in line or "832 B" in line for line in lines) == 2
    assert wrap("4 batches B", 4) == ["4", "batc", "hes", "B"]


def test_without_a_width_nothing_is_wrapped():
    assert laid_out(None, ("a b " * 300, "c")) == ["a b " * 300 + GAP + "c"]


def test_numbers_are_aligned_right():
    assert lay_out([("n",), ("1,000",)], 80, [True]) == [["    n"], ["1,000"]]


def test_wide_characters_take_two_columns():
    assert laid_out(80, ("北京", "a"), ("x", "b")) == ["北京  a", "x     b"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one", "two"]),
        ("ab cd ef", ["ab cd", "ef"]),
        ("abcdefgh i", ["abcde", "fgh i"]),
        ("      ", [""]),
    ],
)
def test_text_is_wrapped_between_words(text, lines):
    assert wrap(text, 5) == lines


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1),
    st.integers(1, 300),
)
def test_widths_fit_if_they_can_and_words_are_broken_only_if_they_must(sizes, room):
    natural = [max(pair) for pair in sizes]
    words = [min(pair) for pair in sizes]
    widths = column_widths(natural, words, room)
    least = [min(each, WIDTH_MIN) for each in words]
    assert sum(widths) <= max(room, sum(least))
    if sum(natural) <= room:
        assert widths == natural
    if sum(words) <= room:
        assert all(width >= word for width, word in zip(widths, words, strict=True))


@given(st.text(alphabet="ab 北", max_size=40), st.integers(2, 20))
def test_wrapped_lines_fit_and_lose_only_spaces(text, width):
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
