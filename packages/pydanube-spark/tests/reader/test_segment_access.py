"""Scans of segments to which a task has access or not."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube_spark.reader.pure.read_options import ReadThrough
from pydanube_spark.reader.pure.scans import plan_scans
from pydanube_spark.reader.scan_reader import SCHEMA, read_scan
from pydanube_spark.reader.segment_access import SegmentAccess
from pydanube_spark.reader.segment_files import NoAccess
from support.fakes.topic_directory import TopicDirectory

TOPIC = "/default/orders"


class CountingTopics(TopicDirectory):
    """Topics that count what the broker serves."""

    reads = 0
    change = staticmethod(lambda segment: segment)

    def read(self, topic, base, end):
        self.reads += 1
        return super().read(topic, base, end)

    def layout(self, topic, base, end):
        head, found = super().layout(topic, base, end)
        segments = tuple(map(self.change, found.segments))
        return head, replace(found, segments=segments)


@pytest.fixture
def topics(tmp_path):
    """Create a topic with two segments of 40 messages."""
    directory = CountingTopics(tmp_path)
    directory.create(TOPIC)
    for _ in range(2):
        directory.publish(TOPIC, 40)
        directory.seal(TOPIC)
    return directory


def name_in(segment):
    return segment.url.rpartition("/")[2]


def on_another_machine(segment):
    """The segment in a directory that this machine does not have."""
    name = name_in(segment)
    return replace(segment, url=f"file:///elsewhere/{name}", object_name=name)


def uploaded_to(path):
    """Such a segment, with a copy in the store at *path*."""

    def move(segment):
        found = on_another_machine(segment)
        return replace(found, remote_url=f"fs://{path}/{found.object_name}")

    return move


def in_unreachable_store(segment):
    """Such a segment, with a copy in a store of an unknown kind."""
    found = on_another_machine(segment)
    return replace(found, remote_url=f"unknown:///{found.object_name}")


def read(topics, access):
    _, found = topics.layout(TOPIC, 0, 80)
    scans = plan_scans([found], scan_bytes_max=1 << 30)
    schema = pa.schema([SCHEMA.field("offset")])
    batches = [
        batch
        for scan in scans
        for batch in read_scan(
            scan, schema, topics, fail_on_data_loss=True, access=access
        )
    ]
    return pa.Table.from_batches(batches, schema).column(0).to_pylist()


@pytest.mark.parametrize("mode", [ReadThrough.AUTO, ReadThrough.NEVER])
def test_local_files_are_read_directly(topics, mode):
    assert read(topics, SegmentAccess(mode)) == list(range(80))
    assert topics.reads == 0


@pytest.mark.parametrize("mode", [ReadThrough.AUTO, ReadThrough.NEVER])
def test_remote_copies_replace_missing_local_files(topics, tmp_path, mode, caplog):
    topics.change = uploaded_to(tmp_path)
    assert read(topics, SegmentAccess(mode)) == list(range(80))
    assert topics.reads == 0
    assert not caplog.records


def test_all_is_read_through_the_broker_if_that_is_requested(topics):
    assert read(topics, SegmentAccess(ReadThrough.ALWAYS)) == list(range(80))
    assert topics.reads == 1


@pytest.mark.parametrize("change", [on_another_machine, in_unreachable_store])
def test_without_access_the_broker_is_asked_and_one_warning_says_so(
    topics, change, caplog
):
    topics.change = change
    access = SegmentAccess()
    for _ in range(3):
        assert read(topics, access) == list(range(80))
    assert topics.reads == 3
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    text = warning.getMessage()
    assert "read through the broker" in text
    assert "elsewhere" in text or "unknown:///" in text
    assert "Mount" in text or "pydanube[objects]" in text


def test_each_query_warns(topics, caplog):
    topics.change = on_another_machine
    for _ in range(2):
        read(topics, SegmentAccess())
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 2


def test_driver_without_access_says_so_when_it_plans(topics, caplog):
    topics.change = in_unreachable_store
    _, found = topics.layout(TOPIC, 0, 80)
    access = SegmentAccess()
    access.check([found])
    access.check([found])
    assert len(caplog.records) == 1
    # Tasks in other processes find out by themselves.
    assert access.reads_directly(found.segments)


@pytest.mark.parametrize("mode", [ReadThrough.NEVER, ReadThrough.ALWAYS])
def test_driver_does_not_try_what_is_not_needed(topics, mode, caplog):
    topics.change = on_another_machine
    _, found = topics.layout(TOPIC, 0, 80)
    SegmentAccess(mode).check([found])
    assert not caplog.records


def test_missing_file_is_an_error_if_only_files_may_be_read(topics):
    topics.change = on_another_machine
    with pytest.raises(CorruptSegment, match="set readThrough to auto"):
        read(topics, SegmentAccess(ReadThrough.NEVER))
    assert topics.reads == 0


def test_refused_access_is_an_error_that_names_the_remedy(topics):
    topics.change = in_unreachable_store
    with pytest.raises(NoAccess, match=r"pydanube\[objects\]") as failure:
        read(topics, SegmentAccess(ReadThrough.NEVER))
    assert isinstance(failure.value, ObjectsUnavailable)
    assert topics.reads == 0


def test_replaced_segment_is_planned_again(topics, caplog):
    _, before = topics.layout(TOPIC, 0, 80)
    topics.compact(TOPIC)
    (scan,) = plan_scans([before], scan_bytes_max=1 << 30)
    schema = pa.schema([SCHEMA.field("offset")])
    batches = read_scan(
        scan, schema, topics, fail_on_data_loss=True, access=SegmentAccess()
    )
    assert sum(batch.num_rows for batch in batches) == 80
    assert topics.reads == 0
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
