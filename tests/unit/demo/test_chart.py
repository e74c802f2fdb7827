"""Tests of the chart."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from pydanube.demo.chart import cpu_by_process, draw, lines_by_package

START = datetime(2026, 1, 1, tzinfo=UTC)


def window(seconds, source, name, first, last):
    return {
        "window_start": START + timedelta(seconds=seconds),
        "source": source,
        "name": name,
        "cpu_s_first": first,
        "cpu_s_last": last,
    }


TELEMETRY = pa.Table.from_pylist(
    [
        window(2, "process/1", "java", 1.5, 3.0),
        window(0, "process/1", "java", 0.0, 1.0),
        window(0, "process/2", "java", 5.0, 5.5),
        window(0, "process/3", "python", 0.0, 0.5),
    ]
)
LINES = pa.Table.from_pylist(
    [
        {"file": "json/decoder.py", "lines": 5},
        {"file": "json/decoder.py", "lines": 2},
        {"file": "ast.py", "lines": 10},
    ]
)


def test_lines_are_summed_by_package():
    assert lines_by_package(LINES) == {"ast": 10, "json": 7}


def test_cpu_is_the_growth_of_the_counters():
    found = cpu_by_process(TELEMETRY)
    assert list(found) == ["java", "python"]
    assert list(found["java"].values()) == [1.5, 2.0]


@pytest.mark.slow
def test_chart_is_a_png_even_without_data(tmp_path):
    for telemetry, lag, batches in (
        (
            TELEMETRY,
            [(0.0, {"q": 5}), (1.0, {"q": 0})],
            [(7, 0.5)],
        ),
        (TELEMETRY.slice(0, 0), [], []),
    ):
        path = tmp_path / "chart.png"
        draw(
            path,
            lines=LINES,
            telemetry=telemetry,
            batches=batches,
            lag=lag,
            headline="x",
        )
        assert path.read_bytes().startswith(b"\x89PNG")
        path.unlink()
