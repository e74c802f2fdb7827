"""Tests of the messages of rows without a payload."""

import pytest

from pydanube.pipelines.json_messages import message_expressions


def test_columns_become_fields_and_those_of_messages_stay():
    assert message_expressions(["number", "key", "a`b"]) == [
        "struct(`number`, `a``b`) AS value",
        "`key`",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        ["payload", "n"],
        ["value"],
        ["key"],
        # The check of the sink names the column.
        ["n", "N"],
    ],
)
def test_other_rows_stay(columns):
    assert message_expressions(columns) is None
