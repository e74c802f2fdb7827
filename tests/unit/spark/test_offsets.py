"""Where a query stands in its topics."""

import json

import pytest

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube.spark.offsets import (
    Head,
    Position,
    ReadAs,
    advance,
    from_json,
    join,
    losses,
    read_as_in,
    refuse,
    resolve,
    skip,
    to_json,
)
from pydanube.spark.options import EARLIEST, LATEST, Bound

A, B = "/default/a", "/default/b"


def test_equal_positions_are_equal_text_whatever_the_order_they_came_in():
    one = to_json({A: Position(1, 5), B: Position(2, 6)})
    other = to_json({B: Position(2, 6), A: Position(1, 5)})
    assert json.dumps(one) == json.dumps(other)
    assert from_json(one) == {A: Position(1, 5), B: Position(2, 6)}


def test_a_checkpoint_of_another_version_is_refused():
    with pytest.raises(InvalidConfig, match="version 2"):
        from_json({"version": 2})


def test_a_bound_is_one_rule_for_all_topics_or_an_offset_for_each():
    heads = {A: Head(1, 10, 50), B: Head(2, 0, 0)}
    assert resolve(Bound(EARLIEST), heads, "x") == {
        A: Position(1, 10),
        B: Position(2, 0),
    }
    assert resolve(Bound(LATEST), heads, "x") == {A: Position(1, 50), B: Position(2, 0)}
    mixed = Bound(by_topic={A: 20, B: LATEST})
    assert resolve(mixed, heads, "x") == {A: Position(1, 20), B: Position(2, 0)}


@pytest.mark.parametrize(
    "by_topic", [{A: 1}, {A: 1, B: 0, "/default/c": 1}, {A: 51, B: 0}]
)
def test_offsets_that_do_not_fit_the_topics_are_refused(by_topic):
    heads = {A: Head(1, 10, 50), B: Head(2, 0, 0)}
    with pytest.raises(InvalidConfig, match="startingOffsets"):
        resolve(Bound(by_topic=by_topic), heads, "startingOffsets")


def test_a_loss_is_reported_with_the_exact_gap():
    found = losses({A: Position(1, 3)}, {A: Head(1, 10, 50)})
    with pytest.raises(OffsetDropped, match=f"{A}: messages 3 … 10 .*failOnDataLoss"):
        refuse(found)
    assert skip({A: Position(1, 3)}, found) == {A: Position(1, 10)}


def test_a_topic_that_was_created_again_is_noticed_and_read_from_its_beginning():
    found = losses({A: Position(1, 3)}, {A: Head(9, 0, 50)})
    with pytest.raises(OffsetDropped, match=r"created again .*1 and is 9"):
        refuse(found)
    assert skip({A: Position(1, 3)}, found) == {A: Position(9, 0)}


def test_a_topic_that_ends_earlier_than_it_did_is_noticed():
    found = losses({A: Position(1, 60)}, {A: Head(1, 0, 50)})
    with pytest.raises(OffsetDropped, match="messages 50 … 60"):
        refuse(found)


def test_a_deleted_topic_is_not_found_and_stays_where_it_is():
    found = losses({A: Position(1, 3)}, {})
    with pytest.raises(TopicNotFound, match=A):
        refuse(found)
    start = skip({A: Position(1, 3)}, found)
    assert advance(start, {}) == {A: Position(1, 3)}


def test_nothing_lost_is_nothing_said():
    found = losses({A: Position(1, 10)}, {A: Head(1, 10, 10)})
    assert found == []
    refuse(found)


def test_a_new_topic_is_read_from_its_beginning():
    start = join({B: Position(2, 5)}, {A: Head(1, 10, 50), B: Head(2, 0, 9)})
    assert list(start) == [A, B]
    assert start[A] == Position(1, 10)


def test_a_batch_never_goes_backwards_nor_into_another_topic_of_the_same_name():
    start = {A: Position(1, 20), B: Position(2, 5)}
    assert advance(start, {A: Head(1, 0, 10), B: Head(3, 0, 100)}) == start


def test_what_values_are_read_as_is_kept_and_disturbs_nothing():
    at = {"/default/a": Position(1, 5)}
    read_as = ReadAs(subject="orders", schema_id=7, version=2)
    found = json.loads(json.dumps(to_json(at, read_as)))
    assert from_json(found) == at
    assert read_as_in(found) == read_as
    assert read_as_in(to_json(at)) is None
    assert list(found) == sorted(found)
