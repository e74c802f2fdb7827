"""Which topics a read has, and what there is of them to read."""

import logging

import pytest

from pydanube.model.errors import InvalidRequest, OffsetDropped, TopicNotFound
from pydanube_spark.reader.pure.query_positions import Position
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.pure.scans import TAIL_MESSAGE_BYTES
from pydanube_spark.reader.topics import (
    find_heads,
    find_range,
    find_ranges,
    require_heads,
)
from support.fakes.topic_directory import TopicDirectory

A = "/default/a"
PARTS = ["/default/b-part-0", "/default/b-part-1"]


@pytest.fixture
def topics(tmp_path):
    directory = TopicDirectory(tmp_path)
    for number, topic in enumerate([A, *PARTS]):
        directory.create(topic, number)
        directory.publish(topic, 30)
        directory.seal(topic)
        directory.publish(topic, 10)
    return directory


def options(**said):
    return parse_read_options(said, Mode.STREAM)


def test_topics_are_found_by_name(topics):
    assert list(find_heads(options(subscribe="/default/b"), topics)) == PARTS
    assert list(find_heads(options(subscribe=PARTS[1]), topics)) == PARTS[1:]
    assert list(find_heads(options(subscribePattern=".*/b"), topics)) == PARTS
    assert list(find_heads(options(assign='{"/default/b": [1]}'), topics)) == PARTS[1:]


def test_topic_deleted_meanwhile_is_skipped(topics):
    class Deleting(TopicDirectory):
        def head(self, topic):
            if topic == PARTS[0]:
                raise TopicNotFound(topic)
            return super().head(topic)

    found = find_heads(options(subscribe="/default/b"), Deleting(topics.path))
    assert list(found) == PARTS[1:]


def test_pattern_skips_non_reliable_topics(topics):
    class NotStored(TopicDirectory):
        def head(self, topic):
            if topic == A:
                raise InvalidRequest("non-reliable")
            return super().head(topic)

    directory = NotStored(topics.path)
    assert list(find_heads(options(subscribePattern=".*"), directory)) == PARTS
    with pytest.raises(InvalidRequest):
        find_heads(options(subscribe=A), directory)


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ({"subscribe": f"{A},/default/c"}, "/default/c"),
        ({"assign": '{"/default/b": [0, 5]}'}, "/default/b partition 5"),
        ({"assign": '{"/default/c": [0]}'}, "/default/c"),
        ({"subscribe": "/default/c", "filter.partitions": "0"}, "/default/c"),
    ],
)
def test_named_topics_must_exist(topics, said, missing):
    read = options(**said)
    with pytest.raises(TopicNotFound, match=f"(?m)no such topic: {missing}$"):
        require_heads(read, topics)


@pytest.mark.parametrize(
    "said",
    [
        {"subscribe": f"{A},/default/b"},
        {"subscribe": PARTS[0]},
        {"subscribePattern": "nothing"},
        {"subscribe": A, "filter.partitions": "1"},
        {"assign": '{"/default/b": [0, 5]}', "filter.partitions": "0"},
    ],
)
def test_unselected_partitions_need_not_exist(topics, said):
    read = options(**said)
    require_heads(read, topics)


def test_loss_is_raised_or_logged(topics, caplog):
    topics.drop_below(A, 30)
    stop = Position(0, 35)
    with pytest.raises(OffsetDropped, match=r"messages 5 … 30 \(25, the last is 29\)"):
        find_range(topics, A, 5, stop, fail_on_data_loss=True)
    with caplog.at_level(logging.WARNING):
        found = find_range(topics, A, 5, stop, fail_on_data_loss=False)
    assert (found.base, found.end) == (30, 35)
    assert "skipping lost messages: /default/a: messages 5 … 30" in caplog.text


def test_nothing_is_left_of_a_topic_that_is_gone(topics):
    stop = Position(0, 35)
    topics.delete(A)
    assert find_range(topics, A, 5, stop, fail_on_data_loss=False) is None
    topics.create(A, 9)
    topics.publish(A, 50)
    assert find_range(topics, A, 5, stop, fail_on_data_loss=False) is None


def test_tail_message_size_comes_from_the_head(topics):
    read = options(subscribe=A)
    heads = find_heads(read, topics)
    heads[A] = type(heads[A])(0, 0, 40, 30, message_bytes=500)
    start, end = {A: Position(0, 30)}, {A: Position(0, 40)}
    found = find_ranges(read, topics, start, end, heads=heads)
    assert found[A].message_bytes == 500
    unknown = find_ranges(read, topics, start, end, heads={})
    assert unknown[A].message_bytes == TAIL_MESSAGE_BYTES
