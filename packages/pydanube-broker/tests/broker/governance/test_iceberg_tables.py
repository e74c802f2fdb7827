"""The states of Iceberg tables in an object store."""

from __future__ import annotations

import random

import msgspec
import pytest

from pydanube.model.errors import ObjectsUnavailable, TopicNotFound
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.model.policy import DispatchMode, TopicPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.iceberg_metadata import (
    MANIFESTS,
    OFFSETS,
    SMALL_MANIFESTS_MAX,
    decode_manifest,
    decode_manifest_list,
)
from pydanube_broker.broker.governance.iceberg_tables import (
    PREFIX,
    STATES_MAX,
    IcebergTables,
)
from support.fakes.manifests import MemoryManifest

TOPIC = TopicName.parse("/default/orders")
REFRESH_S, KEEP_S = 10, 100


def segment(base, end, name="", **changes):
    return SegmentEntry(
        base=base,
        end=end,
        epoch=1,
        count=end - base,
        byte_count=1000,
        object_name=name or f"default/orders/{base}-{end}.parquet",
        first_publish_time=1,
        last_publish_time=2,
        sealed_at=0,
        **changes,
    )


class World:
    """The tables of a broker, over a manifest that the test changes."""

    def __init__(self, broker):
        self.broker = broker
        self.manifest = MemoryManifest()
        self.objects = MemoryObjects()
        self.now_s = 1000
        self.tables = self.restarted()

    def restarted(self, *, must_be_uploaded=False, files_max=100):
        """Return the tables of a broker that has just started."""
        return IcebergTables(
            self.broker.catalog,
            self.manifest,
            self.objects,
            must_be_uploaded=must_be_uploaded,
            wall_clock_us=lambda: self.now_s * 1_000_000,
            refresh_s=REFRESH_S,
            keep_s=KEEP_S,
            files_max=files_max,
        )

    async def create(self, name=TOPIC, policy=None):
        await self.broker.topics.add(name, policy or TopicPolicy(), None)

    async def seal(self, *segments, name=TOPIC, removed=()):
        topic_id = await self.topic_id(name)
        await self.manifest.change(topic_id, 1, added=segments, removed=removed)

    async def topic_id(self, name):
        return TopicId((await self.broker.catalog.get_topic(name)).value.topic_id)

    async def load(self, name=TOPIC):
        return msgspec.json.decode((await self.tables.load(name)).metadata)

    async def offsets(self):
        """Return the offsets in the current snapshot of the table."""
        snapshots = (await self.load())["snapshots"]
        found = msgspec.json.decode(snapshots[-1]["summary"][OFFSETS])
        return found[str(TOPIC)]

    async def read(self, url):
        return await self.objects.read(url.removeprefix("memory:///"))

    async def damage(self, name):
        await self.objects.put(name, b"Obj\x01")

    async def states(self):
        names = await self.objects.names(PREFIX)
        return {name for name in names if name.endswith(".metadata.json")}


@pytest.fixture
async def world(broker):
    world = World(broker)
    await world.create()
    return world


async def test_a_table_has_the_segments_of_the_topic(world):
    await world.seal(segment(0, 10), segment(10, 20))
    assert await world.offsets() == [0, 20]


async def test_nothing_is_written_while_the_segments_are_the_same(world):
    await world.seal(segment(0, 10))
    first = await world.load()
    world.now_s += 1000
    assert await world.load() == first
    assert len(await world.states()) == 1


async def test_a_broker_that_restarts_uses_the_state_in_the_store(world):
    await world.seal(segment(0, 10))
    first = await world.load()
    world.tables = world.restarted()
    world.now_s += 1000
    assert await world.load() == first
    assert len(await world.states()) == 1


async def test_new_segments_make_a_new_snapshot_after_the_refresh_time(world):
    await world.seal(segment(0, 10))
    first = await world.load()
    await world.seal(segment(10, 20))
    assert await world.offsets() == [0, 10]
    world.now_s += REFRESH_S
    assert await world.offsets() == [0, 20]
    second = await world.load()
    old, new = second["snapshots"]
    assert [old] == first["snapshots"]
    assert new["parent-snapshot-id"] == old["snapshot-id"]
    assert new["sequence-number"] > old["sequence-number"]


async def files_of(world, snapshot):
    """Return the names of the data files in the manifests of *snapshot*."""
    rows = decode_manifest_list(await world.read(snapshot["manifest-list"]))
    urls = {row["manifest_path"] for row in rows}
    assert urls == {*msgspec.json.decode(snapshot["summary"][MANIFESTS])}
    manifests = [
        decode_manifest(row, await world.read(row["manifest_path"])) for row in rows
    ]
    return sorted(url.rpartition("/")[2] for each in manifests for url in each.files)


async def files(world):
    """Return the names of the data files in the manifests of the newest snapshot."""
    return await files_of(world, (await world.load())["snapshots"][-1])


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_new_state_has_only_a_manifest_of_what_is_new(world, is_restarted):
    await world.seal(segment(0, 10))
    await world.load()
    for at in range(1, 3 * SMALL_MANIFESTS_MAX):
        before = await world.objects.names(PREFIX)
        await world.seal(segment(at * 10, at * 10 + 10))
        world.now_s += REFRESH_S
        if is_restarted:
            world.tables = world.restarted()
        expected = [f"{each * 10}-{each * 10 + 10}.parquet" for each in range(at + 1)]
        assert await files(world) == sorted(expected)
        new = {*await world.objects.names(PREFIX)} - {*before}
        # The metadata, the list, and what was added; more only after a merge.
        assert len(new) == 3 + (at % SMALL_MANIFESTS_MAX == 1 and at > 1)


class FailingPuts:
    """The puts of an object store, of which one fails after *left* others."""

    def __init__(self, objects):
        self._put = objects.put
        self.left = None
        objects.put = self.put

    async def put(self, name, data):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise ObjectsUnavailable("on purpose")
        await self._put(name, data)


@pytest.mark.parametrize("seed", range(3))
async def test_brokers_that_write_states_in_turns_leave_every_snapshot_whole(
    world, seed
):
    chance = random.Random(seed)
    puts = FailingPuts(world.objects)
    brokers = [world.restarted() for _ in range(2)]
    live, seen, failures, rows_max = [], {}, 0, 0
    for number in range(90):
        kinds = ["seal", "seal", "seal", "retention", "merge"]
        kind = "seal" if number < 2 * SMALL_MANIFESTS_MAX else chance.choice(kinds)
        if kind == "seal" or len(live) < 3:
            base = live[-1].end if live else 0
            added, removed = [segment(base, base + 10)], []
        elif kind == "retention":
            added, removed = [], live[: chance.randrange(1, len(live))]
        else:
            at = chance.randrange(len(live) - 1)
            first, second = removed = live[at : at + 2]
            added = [segment(first.base, second.end, f"merged-{number}")]
        await world.seal(*added, removed=removed)
        live = sorted(
            [each for each in live if each not in removed] + added,
            key=lambda each: each.base,
        )
        # A state comes after one that was not completed, at least by a microsecond.
        world.now_s += REFRESH_S + 1
        if chance.random() < 0.3:
            # One that cannot write all objects of its state, and perhaps the other.
            world.tables = chance.choice(brokers)
            puts.left = chance.randrange(4)
            try:
                await world.load()
            except ObjectsUnavailable:
                failures += 1
            puts.left = None
        world.tables = chance.choice(brokers)
        metadata = await world.load()
        expected = sorted(each.object_name.rpartition("/")[2] for each in live)
        snapshots = metadata["snapshots"]
        seen[snapshots[-1]["snapshot-id"]] = expected
        for each in (snapshots[-1], chance.choice(snapshots)):
            assert await files_of(world, each) == seen[each["snapshot-id"]]
        rows_max = max(rows_max, len(snapshots[-1]["summary"][MANIFESTS].split(",")))
    assert failures > 5
    assert rows_max == SMALL_MANIFESTS_MAX + 1


@pytest.mark.parametrize(("files_max", "expected"), [(3, 0), (2, 1)])
async def test_manifests_of_few_files_are_in_memory(world, files_max, expected):
    other = TopicName.parse("/default/other")
    await world.create(other)
    world.tables = world.restarted(files_max=files_max)
    for name, count in ((TOPIC, 1), (other, 2)):
        segments = [segment(at, at + 1, f"{name}-{at}") for at in range(count)]
        await world.seal(*segments, name=name)
        await world.load(name)
    world.now_s += REFRESH_S
    await world.seal(segment(1, 2))
    reads = world.objects.read
    read = []

    async def recorded(name, *args):
        read.append(name)
        return await reads(name, *args)

    world.objects.read = recorded
    assert await world.offsets() == [0, 2]
    manifests = [
        each
        for each in read
        if each.endswith(".avro") and not each.endswith("-list.avro")
    ]
    assert len(manifests) == expected


async def test_manifests_stay_as_long_as_a_snapshot_has_them(world):
    await world.seal(segment(0, 10), segment(10, 20))
    await world.load()
    for at in range(2, 9):
        world.now_s += KEEP_S // 2
        await world.seal(segment(at * 10, at * 10 + 10))
        assert len(await files(world)) == at + 1
    used = {
        url.removeprefix("memory:///")
        for each in (await world.load())["snapshots"]
        for url in msgspec.json.decode(each["summary"][MANIFESTS])
    }
    stored = {
        name
        for name in await world.objects.names(PREFIX)
        if name.endswith(".avro") and not name.endswith("-list.avro")
    }
    assert stored == used


async def test_a_manifest_that_is_missing_or_damaged_is_written_again(world):
    await world.seal(segment(0, 10))
    for at, damage in enumerate([world.objects.delete, world.damage], 1):
        metadata = await world.load()
        rows = msgspec.json.decode(metadata["snapshots"][-1]["summary"][MANIFESTS])
        for url in rows:
            await damage(url.removeprefix("memory:///"))
        await world.seal(segment(at * 10, at * 10 + 10))
        world.now_s += REFRESH_S
        world.tables = world.restarted()
        assert len(await files(world)) == at + 1


async def test_dropped_segments_are_not_in_the_new_snapshot(world):
    await world.seal(segment(0, 10), segment(10, 20))
    await world.load()
    await world.seal(removed=[segment(0, 10)])
    world.now_s += REFRESH_S
    assert await world.offsets() == [10, 20]


async def test_old_states_and_their_snapshots_are_deleted(world):
    for at in range(4):
        await world.seal(segment(at, at + 1))
        await world.load()
        world.now_s += KEEP_S // 2
    # The first one was replaced 50 s later, so it was kept for 100 s more.
    assert len(await world.states()) == 3
    assert len((await world.load())["snapshots"]) == 3
    names = await world.objects.names(PREFIX)
    metadata = await world.load()
    for each in metadata["snapshots"]:
        assert each["manifest-list"].removeprefix("memory:///") in names


async def test_the_number_of_states_has_a_limit(world):
    world.tables = IcebergTables(
        world.broker.catalog,
        world.manifest,
        world.objects,
        must_be_uploaded=False,
        wall_clock_us=lambda: world.now_s * 1_000_000,
        refresh_s=0,
    )
    for at in range(STATES_MAX + 3):
        await world.seal(segment(at, at + 1))
        await world.load()
    assert len(await world.states()) == STATES_MAX
    assert len((await world.load())["snapshots"]) == STATES_MAX


async def test_segments_that_are_not_uploaded_are_not_in_the_table(world):
    world.tables = world.restarted(must_be_uploaded=True)
    await world.seal(segment(0, 10, is_uploaded=True), segment(10, 20))
    assert await world.offsets() == [0, 10]


async def test_a_table_does_not_shrink_while_a_merged_segment_is_uploaded(world):
    world.tables = world.restarted(must_be_uploaded=True)
    old = [segment(0, 10, is_uploaded=True), segment(10, 20, is_uploaded=True)]
    await world.seal(*old)
    assert await world.offsets() == [0, 20]
    await world.seal(segment(0, 20, "merged"), removed=old)
    world.now_s += REFRESH_S
    assert await world.offsets() == [0, 20]
    assert len(await world.states()) == 1
    await world.seal(segment(0, 20, "merged", is_uploaded=True))
    await world.offsets()
    assert len(await world.states()) == 2


async def test_a_topic_that_is_created_again_has_a_table_without_the_old_snapshots(
    world,
):
    await world.seal(segment(0, 10))
    old = await world.load()
    await world.broker.topics.delete(TOPIC)
    await world.create()
    await world.seal(segment(0, 5, "new"))
    new = await world.load()
    assert new["table-uuid"] != old["table-uuid"]
    assert len(new["snapshots"]) == 1


async def test_a_data_directory_that_was_moved_has_new_addresses(world):
    await world.seal(segment(0, 10))
    await world.load()
    world.tables = world.restarted()
    world.objects.url = lambda name: f"memory:///moved/{name}"
    metadata = await world.load()
    assert metadata["location"] == "memory:///moved/.iceberg/default/orders"
    [snapshot] = metadata["snapshots"]
    assert snapshot["manifest-list"].startswith("memory:///moved/")


async def test_metadata_of_deleted_topics_is_removed(world):
    other = TopicName.parse("/default/other")
    await world.create(other)
    await world.load(other)
    await world.broker.topics.delete(other)
    world.now_s += KEEP_S + 1
    await world.seal(segment(0, 10))
    await world.load()
    assert {name.split("/")[2] for name in await world.states()} == {"orders"}


async def test_a_damaged_metadata_file_is_replaced(world):
    await world.seal(segment(0, 10))
    await world.load()
    [name] = await world.states()
    await world.objects.put(name, b"{")
    world.tables = world.restarted()
    assert await world.offsets() == [0, 10]


async def test_only_reliable_topics_are_tables(world):
    name = TopicName.parse("/default/other")
    with pytest.raises(TopicNotFound):
        await world.tables.check(name)
    await world.create(name, TopicPolicy(dispatch=DispatchMode.NON_RELIABLE))
    with pytest.raises(TopicNotFound, match="not reliable"):
        await world.tables.load(name)
