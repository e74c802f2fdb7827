"""What a run does when others get in its way; nothing is lost by it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pydanube.model.errors import (
    ConnectionLost,
    InvalidRequest,
    SegmentsChanged,
    TopicHeld,
)
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.maintenance.run import (
    ATTEMPTS_MAX,
    MaintenanceOptions,
    maintain,
)
from pydanube_spark.tables.maintenance.segment_jobs import rewrite
from support.fakes.segment_files import (
    TOPIC,
    FileBroker,
    Row,
    read_rows,
    rewriting,
    write_topic,
)

ROWS = [[Row(b"k%d" % (at % 3), b"%d" % at) for at in range(10)] for _ in range(4)]
MERGE = MaintenanceOptions(is_merging=True, target_bytes=12_000)


@pytest.fixture
def broker(tmp_path):
    return FileBroker(tmp_path, write_topic(tmp_path, ROWS))


def keep(broker, work=MERGE, threads=1):
    told = []
    report = maintain(broker, TOPIC, work, ThreadRunner(threads), tell=told.append)
    return report, told


def objects(broker):
    return {
        path.relative_to(broker.root).as_posix()
        for path in broker.root.rglob("*.parquet")
    }


def names(broker):
    return {each.object_name for each in broker.found.segments}


def raising(error):
    def do():
        raise error

    return do


def test_maintenance_plan_changes_nothing(broker):
    before = objects(broker)
    work = MaintenanceOptions(is_compacting=True, is_merging=True, is_plan_only=True)
    report, told = keep(broker, work)
    assert report.segments_rewritten == 4
    assert report.messages_removed == 37
    assert report.segments_after == 4
    assert broker.swaps == []
    assert objects(broker) == before
    assert not list((broker.root / ".parts").iterdir())
    assert told[-1].startswith(f"{TOPIC}: would make one segment of 4, 0 … 40")


def test_held_topic_is_only_verified(broker):
    broker.holds = (SimpleNamespace(name="lake"),)
    before = objects(broker)
    report, _ = keep(broker, replace(MERGE, is_verifying=True))
    assert isinstance(report.error, TopicHeld)
    assert report.segments_verified == 4
    assert objects(broker) == before


def test_refused_segment_is_deleted(broker):
    before = objects(broker)
    broker.before_swap.append(raising(InvalidRequest("no")))
    report, _ = keep(broker)
    assert isinstance(report.error, InvalidRequest)
    assert objects(broker) == before


def test_segment_with_unknown_fate_is_kept(broker):
    def swap_and_lose_the_answer():
        # The broker has replaced the segments, but the response is lost.
        call = broker.replace_segments

        def replace_segments(*arguments):
            broker.replace_segments = call
            call(*arguments)
            raise ConnectionLost("on purpose")

        broker.replace_segments = replace_segments

    swap_and_lose_the_answer()
    before = read_rows(broker.found.segments)
    report, _ = keep(broker)
    assert isinstance(report.error, ConnectionLost)
    assert len(broker.swaps) == 1
    assert names(broker) <= objects(broker)
    assert read_rows(broker.found.segments) == before
    report, _ = keep(broker)
    assert report.error is None
    assert read_rows(broker.found.segments) == before


def test_a_group_that_cannot_be_swapped_stops_those_behind_it(tmp_path):
    """A tombstone must not go before what it has superseded."""
    rows = [
        [Row(b"a", b"1"), *[Row(None, b"x")] * 9],
        [Row(b"a", b""), *[Row(None, b"x")] * 9],
    ]
    broker = FileBroker(tmp_path, write_topic(tmp_path, rows))
    broker.before_swap.append(raising(InvalidRequest("no")))
    before = read_rows(broker.found.segments)
    report, _ = keep(
        broker, MaintenanceOptions(is_compacting=True, grace_s=0), threads=2
    )
    assert isinstance(report.error, InvalidRequest)
    assert broker.swaps == []
    assert read_rows(broker.found.segments) == before
    report, _ = keep(
        broker, MaintenanceOptions(is_compacting=True, grace_s=0), threads=2
    )
    assert report.messages_removed == 2
    assert [len(old) for old, _ in broker.swaps] == [1, 1]


def test_damage_is_reported_and_nothing_is_rewritten(broker):
    damaged = broker.root / broker.found.segments[1].object_name
    damaged.write_bytes(damaged.read_bytes()[:-1])
    report, _ = keep(broker, replace(MERGE, is_verifying=True))
    assert len(report.problems) == 1
    assert damaged.name in report.problems[0]
    assert broker.swaps == []


def test_a_segment_that_goes_while_it_is_verified_is_no_damage(broker):
    gone = broker.found.segments[0]
    told = broker.segments
    count = [0]

    def segments(topic):
        # Retention drops the segment after the run has listed it.
        count[0] += 1
        found = told(topic)
        if count[0] == 1:
            (broker.root / gone.object_name).unlink()
            return found
        return replace(found, segments=found.segments[1:])

    broker.segments = segments
    report, _ = keep(broker, MaintenanceOptions(is_verifying=True))
    assert report.problems == []
    assert report.segments_verified == 4


def merge_first_two(broker):
    """Replace two segments as an idle broker does, and delete them."""
    two = broker.found.segments[:2]
    done = rewrite(rewriting(replace(broker.found, segments=two)))
    old = [each.object_name for each in two]
    new = (done.name, done.byte_count, done.checksum)
    broker.replace_segments(TOPIC, broker.found.topic_id, old, [new])
    for name in old:
        (broker.root / name).unlink()


@pytest.mark.parametrize("is_read", [False, True])
def test_a_run_begins_again_if_the_broker_has_merged_its_segments(broker, is_read):
    before = read_rows(broker.found.segments)
    if is_read:
        broker.before_swap.append(lambda: merge_first_two(broker))
    else:
        listed = broker.segments

        def segments(topic):
            broker.segments = listed
            found = listed(topic)
            merge_first_two(broker)
            return found

        broker.segments = segments
    report, told = keep(broker)
    assert report.error is None
    assert read_rows(broker.found.segments) == before
    assert [line for line in told if "begins again" in line]
    assert len(broker.found.segments) < 3
    assert objects(broker) >= names(broker)


def test_a_run_whose_segments_always_change_ends(broker):
    broker.before_swap += [raising(SegmentsChanged("no"))] * 9
    report, told = keep(broker)
    assert isinstance(report.error, SegmentsChanged)
    # The topic has the same segments, so beginning again would not help.
    assert not [line for line in told if "begins again" in line]

    def drop_first():
        broker.found = replace(broker.found, segments=broker.found.segments[1:])
        raise SegmentsChanged("no")

    broker.before_swap[:] = [drop_first] * 9
    report, told = keep(broker)
    assert isinstance(report.error, SegmentsChanged)
    assert len([line for line in told if "begins again" in line]) == ATTEMPTS_MAX - 1


def test_a_topic_without_segments_needs_nothing(broker):
    broker.found = replace(broker.found, segments=())
    report, _ = keep(broker, MaintenanceOptions(is_merging=True, is_compacting=True))
    assert (report.error, report.segments_after) == (None, 0)
