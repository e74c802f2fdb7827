"""What one round of an export does."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube_spark.reader.pure.scans import TopicRange
from pydanube_spark.tables.export.pure import rounds
from pydanube_spark.tables.export.pure.rounds import (
    APP,
    TOPIC_ID,
    app_transactions,
    limit,
    scans,
)
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from support.fakes.topic_directory import segment


@st.composite
def ranges(draw):
    """Topics whose segments lie anywhere around what is wanted."""
    found = []
    for topic in range(draw(st.integers(1, 3))):
        lengths = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
        sealed = draw(st.integers(0, len(lengths)))
        start = draw(st.integers(0, lengths[0] - 1))
        base, segments = 0, []
        for number, length in enumerate(lengths):
            if number < sealed:
                size = draw(st.integers(1, 1000))
                segments.append(segment(base, base + length, size, f"u{base}"))
            base += length
        found.append(TopicRange(f"/d/t{topic}", topic, start, base, tuple(segments)))
    return found


@given(ranges(), st.integers(0, 3000))
def test_rounds_cover_everything_one_after_the_other(wanted, byte_count_max):
    position = {each.topic: each.base for each in wanted}
    rest, is_last = wanted, False
    while not is_last:
        planned = limit(rest, byte_count_max)
        is_last = planned.is_last
        for each in planned.ranges:
            assert each.base == position[each.topic] < each.end
            position[each.topic] = each.end
        rest = [
            TopicRange(
                each.topic, each.topic_id, position[each.topic], each.end, each.segments
            )
            for each in rest
            if position[each.topic] < each.end
        ]
    assert position == {each.topic: each.end for each in wanted}


@given(ranges(), st.integers(0, 3000))
def test_a_round_that_is_not_the_last_ends_with_a_segment(wanted, byte_count_max):
    planned = limit(wanted, byte_count_max)
    for cut, whole in zip(planned.ranges, wanted, strict=True):
        if cut.end != whole.end:
            assert cut.end in {each.end for each in whole.segments}


@given(ranges(), st.integers(1, 8))
def test_tasks_read_each_message_of_the_round_once(wanted, cores):
    planned = limit(wanted, 1 << 40)
    covered = {each.topic: each.base for each in wanted}
    for scan in scans(planned, cores=cores, scan_bytes_max=100):
        assert scan.base == covered[scan.topic]
        covered[scan.topic] = scan.end
    assert covered == {each.topic: each.end for each in wanted}


def test_small_rounds_are_not_cut_for_every_core():
    segments = (segment(0, 10, rounds.SCAN_BYTES_MIN, "u"),)
    planned = limit([TopicRange("/d/t", 1, 0, 10, segments)], 1 << 40)
    assert len(scans(planned, cores=8, scan_bytes_max=1 << 40)) == 1


def test_nothing_to_do_is_a_round_that_does_nothing():
    planned = limit([], 100)
    assert planned.is_last
    assert scans(planned, cores=2, scan_bytes_max=1) == []


def test_transaction_follows_the_exported_offset():
    new, known = TopicRange("/d/a", 7, 3, 10), TopicRange("/d/b", 8, 5, 9)
    assert app_transactions([new, known], {"/d/a": None, "/d/b": 5}) == [
        AppTransaction(f"{APP}/d/a", 10, after=-1),
        AppTransaction(f"{TOPIC_ID}/d/a", 7, after=-1),
        AppTransaction(f"{APP}/d/b", 9, after=5),
    ]


def test_table_that_is_ahead_keeps_its_offset():
    assert app_transactions([TopicRange("/d/a", 7, 3, 10)], {"/d/a": 12}) == []
