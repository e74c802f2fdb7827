"""Spark's errors as short messages."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
"""The types of Spark's errors."""

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.+)$")
_RAISED_IN_SQL = re.compile(
    r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: |\n\tat |$)", re.DOTALL
)
_ENDS = (" SQLSTATE: ", "\n== ", "\n=== ", ";\n'", "\nJVM stacktrace", "\n\tat ")

_SLOW_STARTS = (
    "Python worker failed to connect back",
    "waiting for the Python worker to connect back",
    "InitializationTimeoutException",
)

SLOW_START = (
    "A Python process of Spark took more than ten seconds to start, which Spark does "
    "not allow: the machine that runs it is too busy. `spark: {slow_starts: …}` says "
    "how often and after which delays the query is retried"
)

CHARACTERS_MAX = 500


def is_slow_start(error: BaseException) -> bool:
    """Return whether *error* says that a Python process of Spark started too slowly."""
    text = str(error)
    return any(each in text for each in _SLOW_STARTS)


def error_message(error: BaseException) -> str:
    """
    Return the message of *error* without stack traces, plans and codes.

    If Python code that Spark ran has failed, return the message of its exception.  If
    a Python process started too slowly, say so, and what changes the retries.
    """
    text = str(error).strip() or type(error).__name__
    raised = _raised_in_python(text)
    if raised is not None:
        return _short(raised)
    if is_slow_start(error):
        return SLOW_START
    by_sql = _RAISED_IN_SQL.search(text)
    if by_sql is not None:
        return _short(by_sql[1])
    cause = re.search(r"terminated with exception: (.*)", text, re.DOTALL)
    text = cause[1] if cause else text
    for end in _ENDS:
        text = text.partition(end)[0]
    return _short(_CONDITION.sub("", text))


def location_in(error: BaseException, file: Path) -> str:
    """Return " (line 12 of functions.py)" if *error* arose in *file*, or nothing."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename) == file:
            return f" (line {frame.lineno} of {file.name})"
    return ""


def _raised_in_python(text: str) -> str | None:
    if "Traceback (most recent call last)" not in text:
        return None
    for line in text.rpartition("Traceback (most recent call last)")[2].splitlines():
        match = _RAISED.match(line.strip())
        # The first line after the frames; its message may have more lines.
        if match and not line.startswith(" "):
            # The type of an exception of ours is not shown.
            is_ours = line.startswith("pydanube")
            return match[2] if is_ours else f"{match[1]}: {match[2]}"
    return None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]} …"
