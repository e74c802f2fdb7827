"""A copy of a journal has its state and its unsealed batches."""

import pytest

from pydanube.model.errors import CorruptJournal
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    MetadataRevision,
    ProducerOpened,
    TopicOpened,
    TopicSealed,
)
from pydanube_broker.storage.journal.journal_copying import JournalCopy, encode_files
from pydanube_broker.storage.journal.recovery import recover
from pydanube_broker.storage.journal.state import JournalState
from support.fakes.batches import frame_of

JOURNAL_ID = bytes(range(16))


def batch(topic_id, base, *payloads, **fields):
    frame = frame_of(payloads, **fields)
    frame.stamp(base, 1)
    return Batch(topic_id, frame)


def opened(topic_id, end=0):
    return TopicOpened(
        topic_id=topic_id,
        name=f"/default/t{topic_id}",
        epoch=1,
        end_offset=end,
        sealed_offset=end,
    )


ENTRIES = [
    MetadataRevision(7),
    opened(1),
    opened(2, 5),
    ProducerOpened(topic_id=1, name="till", producer_id=9, epoch=2),
    batch(1, 0, b"a", b"b", producer="till", producer_id=9, producer_epoch=2),
    batch(1, 2, b"c"),
    batch(2, 5, b"x" * 1000),
    batch(
        1,
        3,
        b"d",
        producer="till",
        producer_id=9,
        producer_epoch=2,
        base_sequence=2,
    ),
    CursorSaved(1, "billing", CursorState(3)),
    TopicSealed(1, 2),
]


def copy_of(entries, sealed_offsets=None):
    """Return a copy of the journal with *entries*, whose first batches are sealed."""
    state, frames = JournalState(), {}
    for entry in entries:
        state.apply(entry)
        if type(entry) is Batch:
            frames.setdefault(entry.topic_id, []).append(entry.frame)
    sealed_offsets = sealed_offsets or {}
    frames = {
        topic_id: [
            each
            for each in found
            if each.base
            >= sealed_offsets.get(topic_id, state.topics[topic_id].sealed_offset)
        ]
        for topic_id, found in frames.items()
    }
    snapshot = list(state.snapshot())
    copy = JournalCopy(snapshot=snapshot, frames=frames, sealed_offsets=sealed_offsets)
    return state, copy


def files_of(copy, bytes_max):
    return dict(
        encode_files(
            copy.entries(), number=4, journal_id=JOURNAL_ID, bytes_max=bytes_max
        )
    )


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_files_of_a_copy_are_recovered_as_the_same_journal(bytes_max):
    state, copy = copy_of(ENTRIES)
    files = files_of(copy, bytes_max)
    assert min(files) == "00000000000000000004.journal"
    assert (len(files) > 1) == (bytes_max < 1000)
    found = recover(files)
    assert found.journal_id == JOURNAL_ID
    assert found.torn is None
    assert list(found.state.snapshot()) == list(state.snapshot())
    bases = {topic: [each.base for each in of] for topic, of in found.frames.items()}
    assert bases == {1: [2, 3], 2: [5]}


def test_messages_that_only_the_log_knows_to_be_sealed_are_not_needed():
    # A journal that outlives the disk keeps messages until they are uploaded.
    _, copy = copy_of(ENTRIES, {1: 3})
    found = recover(files_of(copy, 1 << 20))
    topic = found.state.topics[1]
    assert (topic.sealed_offset, topic.end_offset) == (3, 4)
    assert [each.base for each in found.frames[1]] == [3]


def test_copy_of_an_empty_journal_is_a_file():
    _, copy = copy_of([])
    found = recover(files_of(copy, 1 << 20))
    assert found.state.topics == {}
    assert [each.number for each in found.files] == [4]


def test_copy_with_a_gap_is_refused():
    _, copy = copy_of(ENTRIES)
    copy.frames[1].append(batch(1, 9, b"z").frame)
    with pytest.raises(CorruptJournal, match="at offset 4, it has 9"):
        files_of(copy, 1 << 20)
