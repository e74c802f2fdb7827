"""A query moves forward and reads each message once, whatever happens to topics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import BrokerError
from pydanube_spark.pure.batch_limits import count_between, within_bytes
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
    skip_losses,
    to_json,
    within_rows,
)
from pydanube_spark.reader.pure.scans import TopicRange, byte_count, offset_within
from support.fakes.topic_directory import segment

names = st.sampled_from(
    ["/default/a", "/default/b-part-0", "/default/b-part-1", "/x/c"]
)
offsets = st.integers(0, 60)
positions = st.dictionaries(names, st.builds(Position, st.integers(1, 2), offsets))


@st.composite
def heads(draw):
    found = {}
    for topic in draw(st.sets(names)):
        base = draw(offsets)
        end = base + draw(offsets)
        sealed = draw(st.none() | st.integers(base, end))
        found[topic] = Head(draw(st.integers(1, 2)), base, end, sealed)
    return found


@given(
    positions,
    st.none()
    | st.builds(
        ReaderSchema,
        subject=st.text(),
        schema_id=st.integers(0, 9),
        version=st.integers(1, 9),
    ),
)
def test_positions_survive_the_checkpoint_and_have_one_text(at, reader_schema):
    text = json.dumps(to_json(at, reader_schema))
    found = json.loads(text)
    assert from_json(found) == at
    assert reader_schema_in(found) == reader_schema
    backwards = dict(reversed(at.items()))
    assert json.dumps(to_json(backwards, reader_schema)) == text
    assert list(found) == sorted(found)


@given(positions, heads(), st.none() | st.integers(1, 50))
def test_query_moves_forward_and_never_past_the_end(at, there, rows_max):
    # The positions of checkpoints are sorted.
    begin = add_topics(dict(sorted(at.items())), there)
    begin = skip_losses(begin, find_losses(begin, there))
    end = advance(begin, there)
    waiting = count_between(begin, end)
    if rows_max is not None:
        end = within_rows(begin, end, rows_max)
    assert list(end) == sorted(set(at) | set(there))
    for topic, stop in end.items():
        assert stop.topic_id == begin[topic].topic_id
        assert stop.offset >= begin[topic].offset
        if topic in there:
            assert stop.topic_id == there[topic].topic_id
            assert there[topic].base <= stop.offset <= there[topic].end
    taken = count_between(begin, end)
    assert taken == (waiting if rows_max is None else min(waiting, rows_max))
    # After skip_losses only deleted topics are losses.
    assert all(loss.resume is None for loss in find_losses(end, there))


@given(positions, heads(), positions)
def test_loss_names_exactly_the_missing_messages(at, there, stop):
    found = [
        find_loss(topic, position, there.get(topic), until)
        for topic, position in at.items()
        for until in [stop[topic].offset if topic in stop else None]
    ]
    losses = [loss for loss in found if loss is not None]
    for loss in losses:
        assert str(loss).startswith(loss.topic.split("-part-")[0])
        head, position = there.get(loss.topic), at[loss.topic]
        if head is not None and head.topic_id == position.topic_id:
            gone = range(loss.base, loss.end)
            assert all(not head.base <= offset < head.end for offset in gone)
            assert loss.resume is not None
    if losses:
        with pytest.raises(BrokerError, match="failOnDataLoss"):
            raise_losses(losses)


@st.composite
def stored(draw, topic):
    segments = []
    at = base = draw(st.integers(0, 20))
    for index in range(draw(st.integers(0, 4))):
        end = at + draw(st.integers(1, 30))
        size = draw(st.integers(1, 3_000))
        segments.append(segment(at, end, size, f"file:///{index}"))
        at = end
    end = at + draw(st.integers(1 if at == base else 0, 30))
    return TopicRange(topic, 1, base, end, tuple(segments), draw(st.integers(1, 500)))


@given(stored("/default/a"), st.integers(0, 10_000))
def test_offset_within_grows_with_the_bytes(wanted, bytes_max):
    reached = offset_within(wanted, bytes_max)
    assert wanted.base <= reached <= wanted.end
    assert reached <= offset_within(wanted, bytes_max + 100)
    assert (reached == wanted.end) == (bytes_max >= byte_count(wanted))
    if reached > wanted.base:
        part = TopicRange(
            wanted.topic, 1, wanted.base, reached, wanted.segments, wanted.message_bytes
        )
        # Each piece of a segment rounds its share.
        assert byte_count(part) <= bytes_max + len(wanted.segments)


@given(stored("/default/a"), stored("/default/b"), st.integers(1, 5_000))
def test_limited_batches_reach_the_end_and_each_moves_forward(a, b, bytes_max):
    at = {each.topic: Position(1, each.base) for each in (a, b)}
    last = {each.topic: Position(1, each.end) for each in (a, b)}
    for _ in range(count_between(at, last)):
        if at == last:
            break
        ranges = {
            each.topic: TopicRange(
                each.topic,
                1,
                at[each.topic].offset,
                each.end,
                each.segments,
                each.message_bytes,
            )
            for each in (a, b)
            if at[each.topic].offset < each.end
        }
        end = within_bytes(at, last, ranges, bytes_max)
        assert count_between(at, end) >= 1
        assert all(at[t].offset <= end[t].offset <= last[t].offset for t in at)
        at = end
    assert at == last


@given(positions, st.integers(1, 100))
def test_rows_are_limited_exactly(at, rows_max):
    start = {topic: Position(each.topic_id, 0) for topic, each in at.items()}
    end = within_rows(start, at, rows_max)
    total = sum(each.offset for each in at.values())
    assert count_between(start, end) == min(total, rows_max)
