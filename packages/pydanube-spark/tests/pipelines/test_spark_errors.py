"""Tests of the messages of Spark's errors."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pydanube_spark.pipelines.spark_errors import (
    CHARACTERS_MAX,
    SLOW_START,
    error_message,
    location_in,
)


def test_codes_plans_and_traces_are_removed():
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] There is no `x`. SQLSTATE: 42703; line 1 "
        "pos 7;\n'Project ['x]\n+- Range\n\tat org.apache.spark"
    )
    assert error_message(ValueError(text)) == "There is no `x`."


def test_message_is_the_cause_of_the_query_end():
    text = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: the disk "
        "is full SQLSTATE: XXKST\n=== Streaming Query ==="
    )
    assert error_message(ValueError(text)) == "the disk is full"
    without_code = "It failed.\n=== Streaming Query ===\nIdentifier: x"
    assert error_message(ValueError(without_code)) == "It failed."


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        (
            "java.net.SocketTimeoutException: Timed out while waiting for the Python "
            "worker to connect back"
        ),
    ],
)
def test_message_of_a_slow_start_names_the_setting(cause):
    text = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job "
        f"aborted due to stage failure: Lost task 0.0 in stage 1.0: {cause}\n\tat org."
    )
    assert error_message(ValueError(text)) == SLOW_START
    assert "slow_starts" in SLOW_START


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "pydanube.model.errors.TopicNotFound: there is no /default/x",
            "there is no /default/x",
        ),
        ("ValueError: not yet", "ValueError: not yet"),
        ("package.Broken: so", "Broken: so"),
    ],
)
def test_message_is_the_python_exception(line, expected):
    text = (
        "[PYTHON_EXCEPTION] Failed: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    raise X\n'
        "KeyError: first\n\nDuring handling of the above:\n\n"
        "Traceback (most recent call last):\n"
        f'  File "b.py", line 2, in g\n    Raise: x\n{line}\n\n\tat org.apache'
    )
    assert error_message(ValueError(text)) == expected


def test_message_is_short_and_never_empty():
    assert len(error_message(ValueError("x" * 10_000))) <= CHARACTERS_MAX + 2
    assert error_message(ValueError()) == "ValueError"


def test_location_is_the_line_in_the_file():
    with pytest.raises(ValueError, match="here") as caught:
        int("here")
    found = location_in(caught.value, Path(__file__))
    assert found.endswith(" of test_spark_errors.py)")
    assert location_in(caught.value, Path("other.py")) == ""


def test_message_of_raise_error_is_shown_alone():
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: Lost "
        "task 0.0: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] the "
        "row is wrong SQLSTATE: P0001\n\tat org.apache.spark"
    )
    assert error_message(ValueError(text)) == "the row is wrong"
