"""
Charts as SVG.

Pure.  A chart contains only numbers and the texts of this project, and its colours come
from the style sheet, so it follows the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydanube.model.quantity_formats import format_age
from pydanube_console.pure.history import POINTS_MAX
from pydanube_console.pure.markup import Html, element, join

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 180, 64, 12, 24
_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    name: str
    values: Sequence[float | None]
    """Those that are known; the line has a gap for the others."""


def sparkline(values: Sequence[float], *, label: str) -> Html:
    """Return a small line without axes; *label* is for screen readers."""
    width, height = 96, 22
    top = max(values, default=0.0) or 1.0
    lines = _polylines(values, top, (0, width, 1, height - 2), POINTS_MAX, 0)
    return element(
        "svg",
        *lines,
        viewBox=f"0 0 {width} {height}",
        class_="sparkline",
        role="img",
        aria_label=label,
    )


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    interval_s: float,
    count: int = POINTS_MAX,
    show: Callable[[float], str] | None = None,
) -> Html:
    """
    Return a chart of the last *count* values, which are *interval_s* apart.

    *show* returns a value as text; by default it is ``short_number``.
    """
    show = show or short_number
    known = [value for each in lines for value in each.values if value is not None]
    top = _round_up(max(known, default=0.0))
    plot_height = _HEIGHT - _TOP - _BOTTOM
    parts: list[Html] = []
    for part in (0.0, 0.5, 1.0):
        y = _TOP + plot_height * (1 - part)
        parts += [
            element(
                "line",
                class_="grid",
                x1=str(_LEFT),
                x2=str(_WIDTH),
                y1=f"{y:.1f}",
                y2=f"{y:.1f}",
            ),
            element(
                "text",
                show(top * part),
                class_="axis axis-y",
                x=str(_LEFT - 6),
                y=f"{y + 4:.1f}",
            ),
        ]
    bottom = str(_HEIGHT - 4)
    ago = f"{format_age(interval_s * count)} ago"
    parts += [
        element("text", ago, class_="axis", x=str(_LEFT), y=bottom),
        element("text", "now", class_="axis axis-end", x=str(_WIDTH), y=bottom),
    ]
    box = (_LEFT, _WIDTH - _LEFT, _TOP, plot_height)
    for number, each in enumerate(lines):
        parts += _polylines(each.values, top, box, count, number)
    legend = join(
        element("span", each.name, class_=f"legend legend-{number}")
        for number, each in enumerate(lines)
    )
    latest = ", ".join(
        f"{each.name} {show(each.values[-1])}"
        for each in lines
        if each.values and each.values[-1] is not None
    )
    svg = element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
        aria_label=f"{title}: {latest or 'no values yet'}",
    )
    heading = element("div", element("h3", title), legend, class_="chart-head")
    return element("figure", heading, svg, class_="chart-box")


def short_number(value: float) -> str:
    """Return *value* with at most three digits and a unit of thousands."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or unit == "T":
            shown = f"{value:.0f}" if value >= 10 or value == int(value) else ""
            return f"{shown or f'{value:.1f}'}{unit and ' ' + unit}"
        value /= 1000
    raise AssertionError


def short_age(seconds: float) -> str:
    """Return *seconds* in its two largest units; below 10 s with a decimal."""
    return f"{seconds:.1f}s" if 0 < seconds < 10 else format_age(seconds)


def charts_in_panels(charts: Iterable[Html]) -> Html:
    """Return *charts* beside each other, each in a panel."""
    panels = [element("section", each, class_="panel") for each in charts]
    return element("div", *panels, class_="grid-2")


def _polylines(
    values: Sequence[float | None],
    top: float,
    box: tuple[float, ...],
    count: int,
    number: int,
) -> list[Html]:
    """Return the lines of *values*, the last of which is at the right of *box*."""
    x, width, y, height = box
    step = width / (count - 1)
    first = x + width - (len(values) - 1) * step
    lines: list[list[str]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            place = f"{first + at * step:.1f},{y + height * (1 - value / top):.1f}"
            lines[-1].append(place)
    # A line of one point would not be seen.
    return [
        element(
            "polyline",
            points=" ".join(each if len(each) > 1 else each * 2),
            class_=f"line line-{number}",
        )
        for each in lines
        if each
    ]


def _round_up(value: float) -> float:
    """Return the first of 1, 2, 5, 10, 20 … that is not less than *value*."""
    power = 1.0
    while value > 10 * power:
        power *= 10
    return next(step * power for step in _STEPS if value <= step * power)
