"""Tests of the messages of rows without a payload."""

import pytest

from pydanube_spark.pipelines.pure.json_messages import message_expressions


def test_columns_become_fields_and_those_of_messages_stay():
    assert message_expressions(["number", "key", "a`b"], names_topic=False) == [
        "struct(`number`, `a``b`) AS value",
        "`key`",
    ]


def test_position_of_a_message_that_was_read_is_no_route():
    columns = ["topic", "partition", "offset"]
    assert message_expressions(columns, names_topic=False) == [
        "struct(`topic`, `partition`, `offset`) AS value"
    ]
    assert message_expressions(columns, names_topic=True) == [
        "struct(`partition`, `offset`) AS value",
        "`topic`",
    ]
    columns = ["payload", "key", "partition", "topic"]
    assert message_expressions(columns, names_topic=False) == ["`payload`", "`key`"]
    assert message_expressions(columns, names_topic=True) == [
        "`payload`",
        "`key`",
        "`topic`",
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
    assert message_expressions(columns, names_topic=False) is None
