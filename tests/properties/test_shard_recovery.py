"""
A shard is recovered out of a journal that has other shards and other epochs, too.

The journal has groups, some with snapshots, and is read from any of its snapshots that
a session may keep as the first one.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.group_format import GroupKind, encode_group
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    ShardLeft,
    SnapshotEnd,
    TopicAdopted,
)
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from pydanube_broker.storage.journal.shard_recovery import (
    SourceReading,
    entries_of_adoption,
)
from pydanube_broker.storage.journal.state import JournalState
from support.fakes.batches import frame_of, payloads_of

JOURNAL_ID = b"cluster id, 16 B"
READER = b"reader of 16 B.."
SESSION = JournalSession(number=1, session_id=b"writer of 16 B..".hex(), prefix="j/")
TOPICS = {1: 0, 2: 0, 3: 1}
"""The shard of each topic."""


class Shard:
    """What one claim of a shard has written, as the test knows it."""

    def __init__(self) -> None:
        self.payloads: dict[int, list[bytes]] = {}
        self.cursors: dict[int, int] = {}
        self.sequences: dict[int, int] = {}


class History:
    """Groups of entries of a session that claims shards, serves them, and leaves."""

    def __init__(self) -> None:
        self.state = JournalState()
        self.groups: list[tuple[bool, list]] = []
        self.claims: dict[tuple[int, int], Shard] = {}
        self.last: dict[int, int] = {}
        """The last epoch of each shard."""
        self.left: dict[tuple[int, int], int] = {}
        """The group with the end of each claim that has left."""
        self.begins: dict[tuple[int, int], int] = {}
        """The group in which each claim begins."""
        self.count = 0

    def begin_group(self, *, with_snapshot: bool) -> None:
        if not with_snapshot and self.groups:
            self.groups.append((False, []))
            return
        snapshot = list(self.state.snapshot())
        self.groups.append((True, [*snapshot, SnapshotEnd(len(snapshot))]))

    def add(self, entry) -> None:
        self.groups[-1][1].append(entry)
        assert self.state.apply(entry)

    def claim(self, shard: int) -> None:
        """Begin a later epoch of *shard*, with its topics at any offset."""
        epoch = self.last.get(shard, 0) + 1
        self.last[shard] = epoch
        self.claims[shard, epoch] = Shard()
        self.begins[shard, epoch] = len(self.groups) - 1
        for topic_id, its_shard in TOPICS.items():
            if its_shard == shard:
                self.add(
                    TopicAdopted(
                        topic_id=topic_id,
                        shard=shard,
                        name=f"t{topic_id}",
                        epoch=epoch,
                        end_offset=10 * epoch,
                        sealed_offset=10 * epoch,
                    )
                )

    def current(self, topic_id: int) -> Shard | None:
        shard = TOPICS[topic_id]
        claim = shard, self.last.get(shard, 0)
        return None if claim in self.left else self.claims.get(claim)

    def publish(self, topic_id: int) -> None:
        known = self.current(topic_id)
        if known is None:
            return
        self.count += 1
        payload = b"%d" % self.count
        sequence = known.sequences.get(topic_id, 0)
        frame = frame_of([payload], producer="p", producer_id=1, base_sequence=sequence)
        topic = self.state.topics[topic_id]
        frame.stamp(topic.end_offset, topic.epoch)
        self.add(Batch(topic_id, frame))
        known.payloads.setdefault(topic_id, []).append(payload)
        known.sequences[topic_id] = sequence + 1

    def save_cursor(self, topic_id: int) -> None:
        known = self.current(topic_id)
        if known is None:
            return
        self.count += 1
        self.add(CursorSaved(topic_id, "s", CursorState(self.count)))
        known.cursors[topic_id] = self.count

    def leave(self, shard: int) -> None:
        claim = shard, self.last.get(shard, 0)
        if claim in self.claims and claim not in self.left:
            self.add(ShardLeft(*claim))
            self.left[claim] = len(self.groups) - 1

    async def objects(self) -> MemoryObjects:
        objects = MemoryObjects()
        for number, (has_snapshot, entries) in enumerate(self.groups, 1):
            data = encode_group(
                entries,
                number=number,
                journal_id=JOURNAL_ID,
                writer=SESSION.writer,
                kind=GroupKind.SNAPSHOT if has_snapshot else GroupKind.ENTRIES,
                committed_end=number,
            )
            assert await objects.put_if_absent(SESSION.object_name(number), data)
        return objects

    def firsts(self, claim: tuple[int, int]) -> list[int]:
        """Return the numbers of groups that may be the first if *claim* is needed."""
        later = [
            at
            for (shard, epoch), at in self.begins.items()
            if shard == claim[0] and epoch > claim[1]
        ]
        end = min(later, default=len(self.groups))
        # Messages are not sealed here, so those of the claim must be there.
        begin = self.begins[claim]
        known = self.claims[claim]
        if known.payloads:
            end = min(end, begin)
        return [
            number
            for number, (has_snapshot, _) in enumerate(self.groups[: end + 1], 1)
            if has_snapshot
        ]


steps = st.one_of(
    st.tuples(st.just("claim"), st.integers(0, 1)),
    st.tuples(st.just("publish"), st.integers(1, 3)),
    st.tuples(st.just("save_cursor"), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.integers(0, 1)),
    st.tuples(st.just("begin_group"), st.booleans()),
)


@st.composite
def histories(draw):
    history = History()
    history.begin_group(with_snapshot=True)
    for name, argument in draw(st.lists(steps, max_size=25)):
        if name == "begin_group":
            history.begin_group(with_snapshot=argument)
        else:
            getattr(history, name)(argument)
    return history


@given(histories(), st.data())
async def test_each_claim_is_recovered_as_it_was_written(history, data):
    objects = await history.objects()
    for (shard, epoch), known in history.claims.items():
        first = data.draw(st.sampled_from(history.firsts((shard, epoch))))
        session = replace(SESSION, first=first)
        reading = SourceReading(objects, journal_id=JOURNAL_ID, reader_id=READER)
        if data.draw(st.booleans()):
            await reading.read_ahead(session)
        if (shard, epoch) in history.left:
            await reading.read_until_left(session, shard, epoch)
        else:
            await reading.read_to_end(session)
        found = reading.fold.recovery_of(shard, epoch)
        topics = found.state.topics
        assert topics.keys() == {t for t, its in TOPICS.items() if its == shard}
        frames = found.frames
        assert {t: payloads_of(each) for t, each in frames.items()} == known.payloads
        assert known.cursors == {
            t: each.cursors["s"].offset for t, each in topics.items() if each.cursors
        }
        assert known.sequences == {
            t: each.producers["p"].next_sequence
            for t, each in topics.items()
            if each.producers
        }


@given(histories())
async def test_adopted_entries_fold_to_what_was_recovered(history):
    objects = await history.objects()
    reading = SourceReading(objects, journal_id=JOURNAL_ID, reader_id=READER)
    await reading.read_to_end(SESSION)
    for shard, epoch in history.claims:
        found = reading.fold.recovery_of(shard, epoch)
        for topic_id, topic in found.state.topics.items():
            frames = found.frames.get(topic_id, [])
            # The own journal has other entries of the topic, which do not matter.
            own = history.state.snapshot()
            adopter = JournalState()
            entries = entries_of_adoption(topic_id, topic, frames, (), epoch=99)
            for entry in [*own, *entries]:
                adopter.apply(entry)
            adopted = adopter.topics[topic_id]
            assert adopted == replace(topic, epoch=99, has_left=False)
