"""Where a query stands in its topics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube_spark.reader.pure.bounds import EARLIEST, LATEST, Bound
from pydanube_spark.reader.pure.query_positions import (
    Head,
    Position,
    ReaderSchema,
    add_topics,
    advance,
    find_loss,
    find_losses,
    from_json,
    raise_losses,
    reader_schema_in,
    resolve,
    skip_losses,
    to_json,
)

A, B = "/default/a", "/default/b"


def test_equal_positions_have_equal_json():
    one = to_json({A: Position(1, 5), B: Position(2, 6)})
    other = to_json({B: Position(2, 6), A: Position(1, 5)})
    assert json.dumps(one) == json.dumps(other)
    assert from_json(one) == {A: Position(1, 5), B: Position(2, 6)}


PARTITIONED = st.dictionaries(
    st.sampled_from([A, B, "/default/a-part-x"])
    | st.builds(
        "{}-part-{}".format, st.sampled_from([A, "/other/c"]), st.integers(0, 12)
    ),
    st.builds(Position, st.integers(1, 20), st.integers(0, 2)),
)


@given(PARTITIONED)
def test_positions_of_partitions_survive_as_ranges(positions):
    stored = json.loads(json.dumps(to_json(positions)))
    assert from_json(stored) == positions
    assert list(from_json(stored)) == sorted(positions)
    assert json.dumps(to_json(from_json(stored))) == json.dumps(stored)


def test_equal_offsets_of_partitions_take_one_range():
    many = {f"{A}-part-{n}": Position(n + 5, 100) for n in range(4000)}
    assert to_json(many) == {
        A: {"ids": {"0-3999": 5}, "offsets": {"0-3999": 100}},
        "version": 1,
    }
    moved = many | {f"{A}-part-7": Position(12, 101)}
    assert to_json(moved)[A]["offsets"] == {"0-6": 100, "7": 101, "8-3999": 100}


def test_checkpoint_with_too_many_partitions_is_refused():
    ranges = {"0-99999999999": 1}
    with pytest.raises(InvalidConfig, match=r"0-99999999999 of /default/a.*1000000"):
        from_json({A: {"ids": ranges, "offsets": ranges}, "version": 1})


def test_checkpoint_of_another_format_version_is_refused():
    with pytest.raises(InvalidConfig, match="version 2"):
        from_json({"version": 2})


HEADS = {A: Head(1, 10, 50), B: Head(2, 0, 0)}


def nobody(topic, time):
    raise AssertionError("no time was given")


def resolved(bound, find=nobody, heads=HEADS):
    found = resolve(bound, heads, find)
    return {topic: at.offset for topic, at in found.items()}


def test_a_bound_is_one_rule_for_all_topics_or_an_offset_for_each():
    assert resolved(Bound(option="startingOffsets", value=EARLIEST)) == {A: 10, B: 0}
    assert resolved(Bound(option="startingOffsets", value=LATEST)) == {A: 50, B: 0}
    mixed = Bound(option="startingOffsets", by_name={(A, None): 20, (B, None): LATEST})
    assert resolved(mixed) == {A: 20, B: 0}
    assert resolve(mixed, HEADS, nobody)[B] == Position(2, 0)


def test_offset_after_the_end_is_refused():
    with pytest.raises(
        InvalidConfig, match="startingOffsets: /default/a ends at offset 50"
    ):
        resolved(Bound(option="startingOffsets", by_name={(A, None): 51, (B, None): 0}))


def test_a_time_is_the_first_message_published_then_or_later():
    found = {A: 30, B: None}
    bound = Bound(option="startingOffsets", value=7, is_time=True)
    assert resolved(bound, lambda topic, _: found[topic]) == {A: 30, B: 0}
    strict = Bound(option="startingOffsets", value=7, is_time=True, allows_future=False)
    with pytest.raises(InvalidConfig, match=f"{B} has no message .*Strategy=latest"):
        resolved(strict, lambda topic, _: found[topic])


def test_times_are_looked_for_topic_by_topic():
    bound = Bound(
        option="startingOffsets", by_name={(A, 0): 11, (B, None): 12}, is_time=True
    )
    assert resolved(bound, lambda _, time: time) == {A: 11, B: 12}


def test_a_loss_is_reported_with_the_exact_gap():
    found = find_losses({A: Position(1, 3)}, {A: Head(1, 10, 50)})
    with pytest.raises(OffsetDropped) as raised:
        raise_losses(found)
    assert str(raised.value) == (
        "/default/a: messages 3 … 10 (7, the last is 9) were dropped by retention "
        "before they were read; the first message left is 10. Set "
        "failOnDataLoss=false to continue with the messages that are left, or start "
        "with a new checkpoint. Longer retention or a faster query prevents this."
    )
    assert skip_losses({A: Position(1, 3)}, found) == {A: Position(1, 10)}


def test_a_loss_in_a_partition_is_reported_with_its_number():
    part = f"{A}-part-3"
    [found] = find_losses({part: Position(1, 3)}, {part: Head(1, 10, 50)})
    assert str(found).startswith("/default/a, partition 3: messages 3 … 10 (7, ")


def test_loss_of_a_deleted_topic_ends_at_the_planned_end():
    start = Position(1, 3)
    assert "messages 3 … 9 (6, the last is 8)" in str(find_loss(A, start, None, 9))
    assert "messages from 3 on are gone" in str(find_loss(A, start, None))
    # The loss ends at the planned end of the read.
    found = find_loss(A, start, Head(1, 100, 200), 9)
    assert (found.base, found.end, found.resume) == (3, 9, Position(1, 100))


def test_recreated_topic_is_a_loss_and_resumes_at_its_beginning():
    found = find_losses({A: Position(1, 3)}, {A: Head(9, 0, 50)})
    with pytest.raises(OffsetDropped, match=r"created again .*1 and is 9"):
        raise_losses(found)
    assert skip_losses({A: Position(1, 3)}, found) == {A: Position(9, 0)}


def test_topic_that_ends_earlier_is_a_loss():
    found = find_losses({A: Position(1, 60)}, {A: Head(1, 0, 50)})
    with pytest.raises(OffsetDropped, match="messages 50 … 60"):
        raise_losses(found)


def test_a_deleted_topic_is_not_found_and_stays_where_it_is():
    found = find_losses({A: Position(1, 3)}, {})
    with pytest.raises(TopicNotFound, match=A):
        raise_losses(found)
    start = skip_losses({A: Position(1, 3)}, found)
    assert advance(start, {}) == {A: Position(1, 3)}


def test_no_loss_raises_nothing():
    found = find_losses({A: Position(1, 10)}, {A: Head(1, 10, 10)})
    assert found == []
    raise_losses(found)


def test_a_new_topic_is_read_from_its_beginning():
    start = add_topics({B: Position(2, 5)}, {A: Head(1, 10, 50), B: Head(2, 0, 9)})
    assert list(start) == [A, B]
    assert start[A] == Position(1, 10)


def test_a_batch_never_goes_backwards_nor_into_another_topic_of_the_same_name():
    start = {A: Position(1, 20), B: Position(2, 5)}
    assert advance(start, {A: Head(1, 0, 10), B: Head(3, 0, 100)}) == start


def test_reader_schema_is_kept_beside_the_positions():
    at = {"/default/a": Position(1, 5)}
    reader_schema = ReaderSchema(subject="orders", schema_id=7, version=2)
    found = json.loads(json.dumps(to_json(at, reader_schema)))
    assert from_json(found) == at
    assert reader_schema_in(found) == reader_schema
    assert reader_schema_in(to_json(at)) is None
    assert list(found) == sorted(found)
