"""Damaged records are remembered until they are replaced; their number is bounded."""

import logging

from pydanube.model.errors import Corrupt
from pydanube_broker.metadata.damaged_records import (
    NOTED_MAX,
    PROBLEMS_MAX,
    DamagedRecords,
)


def test_damaged_record_is_logged_once_and_forgotten_when_it_is_replaced(caplog):
    caplog.set_level(logging.INFO)
    damaged = DamagedRecords()
    for _ in range(3):
        damaged.note("/a", Corrupt("no JSON"))
    assert [each.message for each in caplog.records] == [
        "no JSON; it is left out until it is replaced or deleted"
    ]
    assert damaged.problems == ["no JSON"]
    damaged.forget("/a")
    assert not damaged.problems


def test_few_of_many_damaged_records_are_named_among_the_problems():
    damaged = DamagedRecords()
    for number in range(NOTED_MAX + 10):
        damaged.note(f"/{number}", Corrupt(f"record {number}"))
    assert len(damaged) == NOTED_MAX
    assert len(damaged.problems) == PROBLEMS_MAX + 1
    assert (
        damaged.problems[-1] == f"{NOTED_MAX - PROBLEMS_MAX} more records are damaged"
    )
