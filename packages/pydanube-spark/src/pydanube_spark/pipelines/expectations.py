"""
The SQL of a step's expectations.  Pure.

A row breaks an expectation if its condition is false or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydanube_spark.pipelines.pure.json_messages import message_expressions, quote
from pydanube_spark.pipelines.pure.spec import Action, Expectation

COLUMN = "_expectation"
"""The column of quarantined rows with the names of the broken expectations."""
ATTRIBUTE = "x-broken-expectation"
"""The attribute of quarantined messages with the names."""

METRICS = "expect."
"""The beginning of the names of Spark's observed metrics with the counts of a step."""

BROKEN = " is broken by the row "
"""A part of the error of a broken expectation, by which it is recognised."""

ROW_CHARACTERS_MAX = 300
"""How many characters of a row the error shows."""

_ATTRIBUTES = "attributes"

Expectations = Mapping[str, Expectation]


def counts_of(expectations: Expectations) -> dict[str, str]:
    """Return the aggregate that counts the broken rows of each expectation."""
    return {
        name: f"count_if({_is_broken(each)})" for name, each in expectations.items()
    }


def check_or_fail(
    step: str, expectations: Expectations, columns: Sequence[str]
) -> str | None:
    """
    Return a condition that is true, or fails the query at a row that must not occur.

    Return None if no expectation has the action ``fail``.
    """
    shown = f"to_json(struct({', '.join(map(quote, columns))}))"
    cases = [
        f"WHEN {_is_broken(each)} THEN raise_error(concat("
        f"'the expectation {name} of the step {step}{BROKEN}', "
        f"left({shown}, {ROW_CHARACTERS_MAX})))"
        for name, each in expectations.items()
        if each.action is Action.FAIL
    ]
    return f"CASE {' '.join(cases)} ELSE true END" if cases else None


def kept_rows(expectations: Expectations) -> str:
    """Return the condition that no expectation removes a row; empty if none can."""
    removing = [
        f"NOT {_is_broken(each)}"
        for each in expectations.values()
        if each.action is not Action.FAIL
    ]
    return " AND ".join(removing)


def quarantined_rows(expectations: Expectations) -> str:
    """Return the condition that a row goes to the quarantine."""
    return " OR ".join(map(_is_broken, _quarantining(expectations).values()))


def quarantine_expressions(
    expectations: Expectations,
    columns: Sequence[str],
    *,
    for_topic: bool,
    names_topic: bool = False,
) -> list[str]:
    """
    Return the SQL of quarantined rows: the columns, and the broken expectations.

    The names are an attribute of messages, so that these have the fields of the row
    and can be published again; other rows have them in a column.
    """
    names = ", ".join(
        f"CASE WHEN {_is_broken(each)} THEN '{name}' END"
        for name, each in _quarantining(expectations).items()
    )
    broken = f"concat_ws(', ', {names})"
    if not for_topic:
        return ["*", f"{broken} AS {COLUMN}"]
    attributes = f"map('{ATTRIBUTE}', {broken})"
    if _ATTRIBUTES in columns:
        # A row that was in quarantine before may have the attribute.
        own = f"coalesce({_ATTRIBUTES}, map())"
        own = f"map_filter({own}, (k, v) -> k != '{ATTRIBUTE}')"
        attributes = f"map_concat({own}, {attributes})"
    others = [name for name in columns if name != _ATTRIBUTES]
    message = message_expressions(others, names_topic=names_topic)
    message = message or [quote(name) for name in others]
    return [*message, f"{attributes} AS {_ATTRIBUTES}"]


def _quarantining(expectations: Expectations) -> dict[str, Expectation]:
    return {
        name: each
        for name, each in expectations.items()
        if each.action is Action.QUARANTINE
    }


def _is_broken(expectation: Expectation) -> str:
    # The condition may end with a comment.
    return f"(NOT coalesce(({expectation.condition}\n), false))"
