import pytest

from pydanube.model.errors import CorruptJournal
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.journal.state import TopicState
from pydanube_broker.storage.journal.unsealed import find_unsealed
from support.fakes.batches import frame_of


def frame(base, end):
    made = frame_of([b"%d" % at for at in range(base, end)])
    made.stamp(base, 1)
    return made


def segment(base, end):
    return SegmentEntry(
        base=base,
        end=end,
        epoch=1,
        count=end - base,
        byte_count=100,
        object_name=f"{base}-{end}",
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
    )


def state(sealed_offset, end_offset):
    return TopicState("/default/a", 1, end_offset, sealed_offset)


def unsealed(segments, state, frames):
    found, sealed_offset, end_offset = find_unsealed(
        7, segments, state, frames, journal_begin="journal-3"
    )
    return [(each.base, each.end) for each in found], sealed_offset, end_offset


def test_new_topic_begins_at_zero():
    assert unsealed([], None, []) == ([], 0, 0)


def test_frames_after_the_last_segment_are_unsealed():
    frames = [frame(0, 5), frame(5, 9)]
    assert unsealed([segment(0, 5)], state(5, 9), frames) == ([(5, 9)], 5, 9)


def test_manifest_may_be_ahead_of_the_journal():
    frames = [frame(0, 5), frame(5, 9)]
    assert unsealed([segment(0, 5)], state(0, 9), frames) == ([(5, 9)], 5, 9)
    assert unsealed([segment(0, 9)], state(0, 5), []) == ([], 9, 9)


def test_journal_is_ahead_of_segments_that_retention_dropped():
    assert unsealed([], state(9, 9), []) == ([], 9, 9)


def test_frame_is_cut_where_a_segment_ends():
    assert unsealed([segment(0, 7)], state(0, 9), [frame(5, 9)]) == ([(7, 9)], 7, 9)


@pytest.mark.parametrize("frames", [[], [frame(6, 9)]])
def test_messages_in_neither_of_them_are_an_error(frames):
    with pytest.raises(CorruptJournal, match=r"topic 7: messages 5 to \d .*journal-3"):
        unsealed([segment(0, 5)], state(5, 9), frames)
