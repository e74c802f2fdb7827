"""Tests of the parsing of sections."""

from enum import Enum

import pytest

from pydanube.declarations.pure.problems import Problems
from pydanube.declarations.pure.sections import (
    Retries,
    Section,
    parse_duration,
    parse_section,
)
from pydanube.model.errors import InvalidConfig
from pydanube.model.retry import RetryPolicy


class Mode(Enum):
    """A choice."""

    ON = "on"
    OFF = "off"


class Part(Section, frozen=True):
    """A section with a required field."""

    size: int
    mode: Mode = Mode.ON


class Whole(Section, frozen=True):
    """A section with others in it."""

    parts: dict[str, Part] = {}
    retries: Retries = Retries()


def parse(tree):
    problems = Problems(lambda _: None)
    found = parse_section(tree, Whole, (), problems)
    return found, {each.path: each.message for each in problems.found}


def test_sections_are_parsed_with_their_defaults():
    found, problems = parse({"parts": {"a": {"size": 1, "mode": "off"}}})
    assert problems == {}
    assert found.parts == {"a": Part(size=1, mode=Mode.OFF)}
    assert found.retries.policy == RetryPolicy(1.0, 60.0, 3)


def test_every_field_with_a_problem_is_named():
    _, problems = parse(
        {"parts": {"a": {"mode": "of", "sise": 1}, "b": 3}, "retries": {"count": "x"}}
    )
    assert problems.keys() == {
        "parts.a",
        "parts.a.mode",
        "parts.a.sise",
        "parts.b",
        "retries.count",
    }
    assert problems["parts.a"] == "'size' is missing"
    assert problems["parts.a.sise"] == "unknown; did you mean 'size'?"
    assert "did you mean 'off'?" in problems["parts.a.mode"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("1.5 m", 90), ("2h", 7200), ("1d", 86_400)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "0s", "-1s", "1 week", "s"])
def test_invalid_duration_is_refused(text):
    with pytest.raises(InvalidConfig, match="duration"):
        parse_duration(text)
