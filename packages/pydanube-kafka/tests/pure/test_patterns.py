"""Patterns match what Python's regular expressions match, with bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.pure.patterns import LENGTH_MAX, BadPattern, Pattern

NAMES = st.text(alphabet="ab1._-", max_size=6)
ATOMS = st.sampled_from(
    ["a", "b", "1", r"\.", r"\d", r"\W", ".", "[ab]", "[^a1]", "[a-b_]", "[]a]", "[a-]"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])
        ).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(
            lambda each: "(" + "|".join(each) + ")"
        ),
        inner.map(lambda each: f"^{each}$"),
        inner.map(lambda each: f"({each}|)"),
        inner.map(lambda each: f"(?:{each}){{0}}"),
    ),
    max_leaves=6,
)


@given(PATTERNS, NAMES)
def test_patterns_match_what_python_matches(text, name):
    found = Pattern(text).matches(name)
    assert found == (re.fullmatch(text, name) is not None)


TOO_LONG = "a" * (LENGTH_MAX + 1)
REFUSED = (
    r"( ) a) [ [a * a** a{ a{x} a{2,1} a{999} \ \b \1 (?i)a (?=a) [b-a] [[:alpha:]]"
)


@pytest.mark.parametrize("text", [*REFUSED.split(), "(" * 100, TOO_LONG])
def test_other_texts_are_refused(text):
    with pytest.raises(BadPattern):
        Pattern(text)


def test_patterns_that_take_long_elsewhere_take_no_longer_than_names():
    assert not Pattern("(a*)*(a*)*(a|aa)+b").matches("a" * 249)


def test_patterns_with_many_states_are_refused_when_these_are_reached():
    pattern = Pattern(".*a.{12}")
    names = (f"{each:013b}".replace("1", "a") * 2 for each in range(2**13))
    with pytest.raises(BadPattern):
        any(map(pattern.matches, names))


def test_patterns_that_repeat_repetitions_are_refused():
    with pytest.raises(BadPattern):
        Pattern("(((a{9}){9}){9}){9}")
