"""Journal files are read as they were written, up to damage."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import CorruptJournal
from pydanube.model.ranges import RangeSet
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    FileHeader,
    ProducerDeleted,
    ProducerOpened,
    ShardForgotten,
    ShardLeft,
    SnapshotEnd,
    SubscriptionDeleted,
    TopicAdopted,
    TopicDeleted,
    TopicOpened,
    TopicSealed,
    decode_entry,
    encode_entry,
)
from pydanube_broker.storage.journal.recovery import file_name, recover
from pydanube_broker.storage.journal.state import JournalState
from support.fakes.batches import frame_of

HEADER = FileHeader(1, b"0123456789abcdef")
topics = st.integers(1, 3)
names = st.text(max_size=5)
offsets = st.integers(0, 2**62)
shards = st.integers(0, 1)


@st.composite
def frames(draw):
    payloads = draw(st.lists(st.binary(max_size=30), min_size=1, max_size=4))
    return frame_of(
        payloads,
        producer=draw(st.sampled_from(["", "a", "b"])),
        producer_id=draw(st.integers(0, 2)),
        base_sequence=draw(st.integers(0, 50)),
    )


cursors = st.builds(
    CursorState,
    offsets,
    st.lists(st.tuples(offsets, offsets), max_size=3).map(RangeSet),
)
entries = st.one_of(
    st.builds(Batch, topics, frames()),
    st.builds(CursorSaved, topics, names, cursors),
    st.builds(
        ProducerOpened,
        topic_id=topics,
        name=names,
        producer_id=st.integers(0, 9),
        epoch=st.integers(0, 9),
    ),
    st.builds(ProducerDeleted, topics, names),
    st.builds(SubscriptionDeleted, topics, names),
    st.builds(TopicDeleted, topics),
    st.builds(TopicSealed, topics, st.integers(0, 40)),
    st.builds(
        TopicAdopted,
        topic_id=topics,
        shard=shards,
        name=names,
        epoch=st.integers(1, 3),
        end_offset=st.integers(0, 9),
        sealed_offset=st.just(0),
    ),
    st.builds(ShardLeft, shards, st.integers(1, 3)),
    st.builds(ShardForgotten, shards, st.integers(1, 3)),
)


def histories():
    """Entries as a broker writes them: batches continue their open topic."""
    return st.lists(entries, max_size=12).map(_consistent)


def _consistent(entries):
    history = [
        TopicOpened(
            topic_id=topic, name=f"t{topic}", epoch=1, end_offset=0, sealed_offset=0
        )
        for topic in (1, 2)
    ]
    state = fold(history)
    for entry in entries:
        topic = state.topics.get(getattr(entry, "topic_id", 0))
        if isinstance(entry, Batch):
            if topic is None:
                continue
            entry.frame.stamp(topic.end_offset, topic.epoch)
        if isinstance(entry, TopicSealed) and (
            topic is None or entry.sealed_offset > topic.end_offset
        ):
            continue
        state.apply(entry)
        history.append(entry)
    return history


def file_of(history, group=1) -> tuple[bytes, list[int]]:
    """Return a file with the entries of *history*, and the end of each."""
    data = bytearray(HEADER.encode())
    ends, synced = [], 0
    for at, entry in enumerate([SnapshotEnd(0), *history]):
        buffers, _ = encode_entry(
            entry, position=len(data), synced=synced, seed=HEADER.seed
        )
        data += b"".join(bytes(buffer) for buffer in buffers)
        ends.append(len(data))
        if at % group == 0:
            synced = len(data)
    return bytes(data), ends


def fold(history) -> JournalState:
    state = JournalState()
    for entry in history:
        state.apply(entry)
    return state


def recovered(data: bytes):
    return recover({file_name(1): memoryview(data)})


@given(histories())
def test_written_entries_are_recovered(history):
    data, _ = file_of(history)
    recovery = recovered(data)
    assert recovery.torn is None
    assert recovery.state == fold(history)
    kept = {
        topic: [bytes(frame.buffer) for frame in frames]
        for topic, frames in recovery.frames.items()
    }
    assert kept == _unsealed(history)


def _unsealed(history):
    kept, state = {}, JournalState()
    for entry in history:
        counts = state.apply(entry)
        if counts and isinstance(entry, Batch):
            kept.setdefault(entry.topic_id, []).append(entry.frame)
        if counts and isinstance(entry, TopicDeleted | TopicAdopted):
            kept.pop(entry.topic_id, None)
    found = {
        topic: [
            bytes(frame.buffer)
            for frame in frames
            if frame.end > state.topics[topic].sealed_offset
        ]
        for topic, frames in kept.items()
        if topic in state.topics
    }
    return {topic: frames for topic, frames in found.items() if frames}


@given(histories())
def test_snapshot_folds_to_an_equal_state(history):
    state = fold(history)
    assert fold(state.snapshot()) == state


@given(histories(), st.data())
def test_any_prefix_of_a_file_gives_a_prefix_of_its_entries(history, data):
    whole, ends = file_of(history)
    length = data.draw(st.integers(ends[0], len(whole)))
    recovery = recovered(whole[:length])
    count = sum(end <= length for end in ends) - 1
    assert recovery.state == fold(history[:count])
    assert (recovery.torn is None) == (length in ends)


@settings(max_examples=2 * settings.default.max_examples)
@given(histories(), st.integers(1, 4), st.data())
def test_any_flipped_bit_gives_a_prefix_or_is_reported(history, group, data):
    whole, ends = file_of(history, group)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        recovery = recovered(bytes(damaged))
    except CorruptJournal:
        return
    if recovery.headless_file is not None:
        assert not history
        return
    # A flipped bit in padding does not matter; any other is detected.
    end = recovery.files[-1].byte_count
    assert recovery.state == fold(history[: ends.index(end)])
    assert end == len(whole) or bit // 8 >= end


@settings(max_examples=2 * settings.default.max_examples)
@given(histories(), st.data())
def test_damage_before_a_later_sync_is_never_cut_off(history, data):
    """Every entry was synced before the next: only the last one may be torn."""
    whole, ends = file_of(history)
    if len(ends) < 3:
        return
    at = data.draw(st.integers(ends[0], ends[-2] - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 0xFF
    try:
        recovery = recovered(bytes(damaged))
    except CorruptJournal:
        return
    assert recovery.state == fold(history)  # It was padding.


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_not_an_entry(data):
    try:
        decode_entry(memoryview(bytes(48) + data), 48, HEADER.seed)
    except CorruptJournal:
        return
    raise AssertionError("an entry out of nothing")
