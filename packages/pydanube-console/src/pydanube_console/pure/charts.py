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
    values: Sequence[float]


def sparkline(values: Sequence[float], *, label: str) -> Html:
    """Return a small line without axes; *label* is for screen readers."""
    width, height = 96, 22
    top = max(values, default=0.0) or 1.0
    points = _points(values, top, (0, width, 1, height - 2))
    line = element("polyline", points=points, class_="line line-0")
    return element(
        "svg",
        line,
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
    show: Callable[[float], str] | None = None,
) -> Html:
    """
    Return a chart of the last values, which are *interval_s* apart.

    *show* returns a value as text; by default it is ``short_number``.
    """
    show = show or short_number
    top = _round_up(max((max(each.values, default=0.0) for each in lines), default=0.0))
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
    ago = f"{format_age(interval_s * (POINTS_MAX - 1))} ago"
    parts += [
        element("text", ago, class_="axis", x=str(_LEFT), y=bottom),
        element("text", "now", class_="axis axis-end", x=str(_WIDTH), y=bottom),
    ]
    box = (_LEFT, _WIDTH - _LEFT, _TOP, plot_height)
    for number, each in enumerate(lines):
        points = _points(each.values, top, box)
        parts.append(element("polyline", points=points, class_=f"line line-{number}"))
    legend = join(
        element("span", each.name, class_=f"legend legend-{number}")
        for number, each in enumerate(lines)
    )
    latest = ", ".join(
        f"{each.name} {show(each.values[-1])}" for each in lines if each.values
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


def _points(values: Sequence[float], top: float, box: tuple[float, ...]) -> str:
    """Return the points of *values*, the last one at the right of *box*."""
    x, width, y, height = box
    step = width / (POINTS_MAX - 1)
    first = x + width - (len(values) - 1) * step
    return " ".join(
        f"{first + number * step:.1f},{y + height * (1 - value / top):.1f}"
        for number, value in enumerate(values)
    )


def _round_up(value: float) -> float:
    """Return the first of 1, 2, 5, 10, 20 … that is not less than *value*."""
    power = 1.0
    while value > 10 * power:
        power *= 10
    return next(step * power for step in _STEPS if value <= step * power)
