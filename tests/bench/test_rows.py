"""Tests of the rows of a report."""

import pytest

from bench.rows import Run, Spread, by_table, rows_of


def run(line="a/x", *, workload="publish", size=100, **told):
    options = {"round": told.pop("round_", 1), "failure": told.pop("failure", None)}
    return Run(
        workload=workload,
        line=line,
        durability="memory" if line.endswith("memory") else "page cache",
        setting="as it is",
        message_bytes=size,
        figures=told,
        **options,
    )


def test_rounds_of_a_line_are_one_row():
    runs = [run(round_=n, per_second=float(n)) for n in (1, 2, 3)]

    [row] = rows_of(runs)

    assert row.figures == {"per_second": Spread(2.0, 1.0, 3.0)}
    assert row.rounds == 3
    assert row.failures == ()


def test_interleaved_lines_are_separate_rows():
    runs = [run("a/x", round_=1), run("b/x", round_=1), run("a/x", round_=2)]

    assert [(row.line, row.rounds) for row in rows_of(runs)] == [("a/x", 2), ("b/x", 1)]


def test_failed_round_has_no_figures():
    runs = [run(per_second=9.0), run(failure="3 of 5 came", round_=2)]

    [row] = rows_of(runs)

    assert row.figures["per_second"] == Spread(9.0, 9.0, 9.0)
    assert row.failures == ("3 of 5 came",)


def test_table_has_one_workload_and_class():
    rows = rows_of(
        [
            run("a/x", size=1024),
            run("a/x", size=16),
            run("a/memory"),
            run("b/x", size=16),
            run("a/x", workload="both"),
        ]
    )

    tables = by_table(rows)

    assert [table for table, _ in tables] == [
        ("publish", "page cache"),
        ("publish", "memory"),
        ("both", "page cache"),
    ]
    _, first = tables[0]
    assert [(row.message_bytes, row.line) for row in first] == [
        (16, "a/x"),
        (16, "b/x"),
        (1024, "a/x"),
    ]


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0, 1.0, 2.0], Spread(2.0, 1.0, 3.0)),
        ([4.0, 1.0, 3.0, 2.0], Spread(2.5, 1.0, 4.0)),
        ([5.0], Spread(5.0, 5.0, 5.0)),
    ],
)
def test_spread_is_median_minimum_and_maximum(values, spread):
    assert Spread.of(values) == spread


def test_no_values_have_no_spread():
    assert Spread.of([]) is None
