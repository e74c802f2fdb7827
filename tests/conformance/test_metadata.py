"""The promises of the metadata store interface, tested for each store."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import Corrupt, RevisionConflict, SessionLost
from pydanube_broker.metadata.etcd.store import open_etcd
from pydanube_broker.metadata.key import Key, key_of, prefix_of
from pydanube_broker.metadata.shared_sqlite import open_shared_sqlite
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import (
    ABSENT,
    Delete,
    HasValue,
    Put,
    Stored,
    Unchanged,
)
from pydanube_zookeeper.store import open_zookeeper
from support.fakes.memory_store import MemoryStore
from support.servers import etcd as etcd_servers
from support.servers import zookeeper as zookeeper_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore
    from support.servers.etcd import EtcdMember
    from support.servers.zookeeper import ZookeeperMember

THINGS = prefix_of("/things/", int)
ONE = THINGS.key("one")
TWO = THINGS.key("two")
OTHER = key_of("/thingsandmore/x", int)


@asynccontextmanager
async def open_memory(_: Path) -> AsyncIterator[MemoryStore]:
    yield MemoryStore()


OPENERS = {
    "memory": open_memory,
    "sqlite": lambda directory: open_sqlite(directory / "metadata.sqlite"),
    "shared sqlite": lambda directory: open_shared_sqlite(
        directory / "shared.sqlite", "1"
    ),
}


SHARED = {
    "etcd": lambda member: open_etcd(etcd_servers.config_of(member)),
    "zookeeper": lambda member: open_zookeeper(zookeeper_servers.config_of(member)),
}
"""Stores that need a server; the fixture of that has the same name."""


@pytest.fixture(
    params=[
        *OPENERS,
        pytest.param("etcd", marks=pytest.mark.e2e),
        pytest.param("zookeeper", marks=pytest.mark.soak),
    ]
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[MetadataStore]:
    """Open a fresh store."""
    if request.param in SHARED:
        opened = SHARED[request.param](request.getfixturevalue(request.param))
    else:
        opened = OPENERS[request.param](tmp_path)
    async with opened as store:
        yield store


@pytest.fixture(params=OPENERS)
async def local_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[MetadataStore]:
    """Open a fresh store that nobody else uses."""
    async with OPENERS[request.param](tmp_path) as store:
        yield store


async def test_put_value_is_returned_by_get(store: MetadataStore) -> None:
    revision = await store.put(ONE, 1)
    stored = await store.get(ONE)
    assert stored is not None
    assert (stored.value, stored.revision) == (1, revision)


async def test_absent_key_is_none(store: MetadataStore) -> None:
    assert await store.get(ONE) is None


async def test_every_change_raises_the_revision(store: MetadataStore) -> None:
    revisions = [await store.revision()]
    revisions.append(await store.put(ONE, 1))
    revisions.append(await store.put(TWO, 2))
    await store.delete(ONE)
    revisions.append(await store.revision())
    revisions.append(await store.transaction([], [Put(ONE, 1), Delete(TWO)]))
    assert sorted(set(revisions)) == revisions
    assert await store.revision() == revisions[-1]


async def test_every_change_of_a_local_store_raises_the_revision_by_one(
    local_store: MetadataStore,
) -> None:
    store = local_store
    assert await store.revision() == 0
    assert await store.put(ONE, 1) == 1
    assert await store.put(TWO, 2) == 2
    await store.delete(ONE)
    assert await store.revision() == 3
    assert await store.transaction([], [Put(ONE, 1), Delete(TWO)]) == 4


async def test_deleting_an_absent_key_changes_nothing(store: MetadataStore) -> None:
    revision = await store.put(ONE, 1)
    assert await store.delete(TWO) is False
    assert await store.transaction([], []) == await store.revision()
    assert (await store.get(ONE)).revision == revision


async def test_changed_paths_are_reported(store: MetadataStore) -> None:
    calls = []
    async with store.watch(THINGS) as watch:
        await anext(watch)
        with store.reporting(lambda *change: calls.append(change)):
            await store.delete(TWO)
            revision = await store.transaction([], [Put(ONE, 1), Delete(TWO)])
            # The watch is told later.
            await anext(watch)
    assert calls == [(revision, [ONE.path])]


async def test_put_expecting_absence_never_overwrites(store: MetadataStore) -> None:
    revision = await store.put(ONE, 1, expected=ABSENT)
    with pytest.raises(
        RevisionConflict,
        match=f"/things/one has revision {revision}; expected no value",
    ):
        await store.put(ONE, 2, expected=ABSENT)
    assert (await store.get(ONE)).value == 1


async def test_put_expecting_a_revision_loses_against_a_later_change(
    store: MetadataStore,
) -> None:
    read = await store.put(ONE, 1)
    later = await store.put(ONE, 2, expected=read)
    with pytest.raises(
        RevisionConflict, match=f"has revision {later}; expected revision {read}"
    ):
        await store.put(ONE, 3, expected=read)
    assert (await store.get(ONE)).value == 2


async def test_put_expecting_a_revision_loses_against_a_deletion(
    store: MetadataStore,
) -> None:
    read = await store.put(ONE, 1)
    await store.delete(ONE)
    with pytest.raises(RevisionConflict, match="has no value; expected revision"):
        await store.put(ONE, 2, expected=read)
    assert await store.get(ONE) is None


async def test_delete_returns_whether_the_key_existed(store: MetadataStore) -> None:
    revision = await store.put(ONE, 1)
    assert await store.delete(ONE, expected=revision) is True
    assert await store.delete(ONE) is False
    with pytest.raises(RevisionConflict):
        await store.delete(ONE, expected=revision)


async def test_scan_returns_paths_below_the_prefix_in_order(
    store: MetadataStore,
) -> None:
    two = await store.put(TWO, 2)
    await store.put(OTHER, 9)
    still = await store.put(THINGS.key("deeper/still"), 3)
    one = await store.put(ONE, 1)
    found = await store.scan(THINGS)
    assert [(THINGS.name_of(path), each.value) for path, each in found] == [
        ("deeper/still", 3),
        ("one", 1),
        ("two", 2),
    ]
    assert [each.revision for _, each in found] == [still, one, two]
    assert await store.scan(THINGS.within("deep")) == []


async def test_many_prefixes_are_scanned_together(store: MetadataStore) -> None:
    prefixes = [THINGS.within(f"{number:03d}") for number in range(250)]
    assert await store.scan_each([]) == []
    assert await store.scan_each(prefixes) == [[]] * 250
    for number in (0, 99, 249):
        for at in range(2):
            await store.put(THINGS.key(f"{number:03d}", at), number + at)
    # More than are read together with others.
    for first in range(0, 130, 65):
        keys = [THINGS.key("100", f"{at:03d}") for at in range(first, first + 65)]
        await store.transaction([], [Put(key, 7) for key in keys])
    found = await store.scan_each(prefixes)
    assert found == [await store.scan(each) for each in prefixes]
    assert [len(each) for each in found if each] == [2, 2, 130, 2]


async def test_many_keys_are_read_together(store: MetadataStore) -> None:
    keys = [THINGS.key(f"{number:03d}") for number in range(250)]
    assert await store.get_each([]) == []
    for number in (0, 99, 249):
        await store.put(keys[number], number)
    found = await store.get_each(keys)
    assert found == [await store.get(each) for each in keys]
    assert [each.value for each in found if each is not None] == [0, 99, 249]


async def test_scan_orders_names_of_any_script(store: MetadataStore) -> None:
    names = ["a", "é", "ж", "中", "🦆", "z", "~", "-"]
    for at, name in enumerate(names):
        await store.put(THINGS.key(name), at)
    found = await store.scan(THINGS)
    assert [THINGS.name_of(path) for path, _ in found] == sorted(names)


async def test_transaction_is_all_or_nothing(store: MetadataStore) -> None:
    revision = await store.put(ONE, 1)
    with pytest.raises(RevisionConflict):
        await store.transaction(
            [Unchanged(ONE, revision), Unchanged(TWO, revision)],
            [Put(ONE, 7), Put(TWO, 7)],
        )
    assert (await store.get(ONE)).value == 1
    assert await store.get(TWO) is None


async def test_transaction_writes_everything_at_one_revision(
    store: MetadataStore,
) -> None:
    revision = await store.transaction(
        [Unchanged(ONE, ABSENT), Unchanged(TWO, ABSENT)], [Put(ONE, 1), Put(TWO, 2)]
    )
    assert {each.revision for _, each in await store.scan(THINGS)} == {revision}


async def test_transaction_may_compare_a_value(store: MetadataStore) -> None:
    epoch = key_of("/epochs/1", int)
    with pytest.raises(RevisionConflict, match="has no value; expected 4"):
        await store.transaction([HasValue(epoch, 4)], [Put(ONE, 1)])
    await store.put(epoch, 4)
    await store.transaction([HasValue(epoch, 4)], [Put(ONE, 1)])
    await store.put(epoch, 5)
    with pytest.raises(RevisionConflict, match="has 5; expected 4"):
        await store.transaction([HasValue(epoch, 4)], [Put(ONE, 2)])
    assert (await store.get(ONE)).value == 1


async def test_value_of_another_type_is_corrupt(store: MetadataStore) -> None:
    await store.put(key_of(ONE.path, str), "one")
    with pytest.raises(Corrupt, match="invalid int"):
        await store.get(ONE)
    with pytest.raises(Corrupt, match="invalid int"):
        await store.scan(THINGS)


KEYS = st.sampled_from([ONE, TWO, OTHER])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("put absent"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("put unchanged"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("delete"), KEYS, st.just(0)),
    st.tuples(st.just("holds"), KEYS, st.integers(0, 3)),
)


async def _play(
    store: MetadataStore, steps: list[tuple[str, Key[int], int]]
) -> list[object]:
    """Return the answers of *store*, with the changes counted instead of revisions."""
    answers: list[object] = []
    last = 0
    numbers = {0: 0}
    for kind, key, value in steps:
        try:
            if kind == "put":
                last = await store.put(key, value)
            elif kind == "put absent":
                last = await store.put(key, value, expected=ABSENT)
            elif kind == "put unchanged":
                last = await store.put(key, value, expected=last)
            elif kind == "delete":
                answers.append(await store.delete(key))
            else:
                last = await store.transaction([HasValue(key, value)], [Put(ONE, 9)])
        except RevisionConflict as error:
            answers.append(
                re.sub(
                    r"revision (\d+)",
                    lambda found: f"change {numbers[int(found[1])]}",
                    str(error),
                )
            )
        numbers.setdefault(last, len(numbers))
        answers += [
            numbers[last],
            [
                (path, Stored(each.value, numbers[each.revision]))
                for path, each in await store.scan(THINGS)
            ],
        ]
    return answers


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
async def test_all_local_stores_behave_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Key[int], int]]
) -> None:
    directory = tmp_path_factory.mktemp("stores")
    played = []
    for opener in OPENERS.values():
        async with opener(directory) as store:
            played.append(await _play(store, steps))
    assert all(each == played[0] for each in played)


@pytest.mark.e2e
@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
async def test_etcd_behaves_like_local_stores(
    etcd: EtcdMember, steps: list[tuple[str, Key[int], int]]
) -> None:
    async with SHARED["etcd"](etcd) as store:
        assert await _play(store, steps) == await _play(MemoryStore(), steps)


@pytest.mark.soak
@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
async def test_zookeeper_behaves_like_local_stores(
    zookeeper: ZookeeperMember, steps: list[tuple[str, Key[int], int]]
) -> None:
    async with SHARED["zookeeper"](zookeeper) as store:
        assert await _play(store, steps) == await _play(MemoryStore(), steps)


# Sessions.


async def test_keys_of_a_session_are_deleted_at_its_end(store: MetadataStore) -> None:
    async with store.open_session(10.0) as session:
        await store.transaction(
            [Unchanged(ONE, ABSENT)], [Put(ONE, 1, session), Put(TWO, 2)]
        )
        assert (await store.get(ONE)).value == 1
        before = await store.revision()
        assert not session.is_lost
    assert await store.get(ONE) is None
    assert (await store.get(TWO)).value == 2
    assert await store.revision() > before


async def test_a_later_put_decides_the_session_of_a_key(store: MetadataStore) -> None:
    async with store.open_session(10.0) as first:
        async with store.open_session(10.0) as second:
            await store.transaction([], [Put(ONE, 1, second), Put(TWO, 2, second)])
            await store.put(ONE, 3)
            await store.transaction([], [Put(TWO, 4, first)])
        assert [each.value for _, each in await store.scan(THINGS)] == [3, 4]
    assert [each.value for _, each in await store.scan(THINGS)] == [3]


async def test_a_deleted_key_leaves_its_session(store: MetadataStore) -> None:
    async with store.open_session(10.0) as session:
        await store.transaction([], [Put(ONE, 1, session)])
        await store.delete(ONE)
        await store.put(ONE, 2)
    assert (await store.get(ONE)).value == 2


async def test_a_closed_session_is_lost_and_holds_nothing_more(
    store: MetadataStore,
) -> None:
    async with store.open_session(10.0) as session:
        pass
    assert session.lost.is_set()
    with pytest.raises(SessionLost, match="keepalives"):
        await store.transaction([], [Put(ONE, 1), Put(TWO, 2, session)])
    assert await store.scan(THINGS) == []


async def test_the_end_of_a_session_is_a_change(store: MetadataStore) -> None:
    async with store.watch(THINGS) as watch:
        assert (await anext(watch)).values == {}
        async with store.open_session(10.0) as session:
            await store.transaction([], [Put(ONE, 1, session), Put(TWO, 2, session)])
            assert (await anext(watch)).values.keys() == {ONE.path, TWO.path}
        ended = await anext(watch)
    assert ended.values == {ONE.path: None, TWO.path: None}
    assert ended.revision == await store.revision()


# Watches.


async def test_a_watch_begins_with_all_values(store: MetadataStore) -> None:
    await store.put(ONE, 1)
    await store.put(OTHER, 9)
    await store.put(TWO, 2)
    await store.delete(TWO)
    async with store.watch(THINGS) as watch:
        first = await anext(watch)
    assert first.values == {ONE.path: await store.get(ONE)}
    assert first.revision == await store.revision()


async def test_a_watch_reports_a_transaction_at_once(store: MetadataStore) -> None:
    await store.put(ONE, 1)
    async with store.watch(THINGS) as watch:
        await anext(watch)
        revision = await store.transaction(
            [], [Delete(ONE), Put(TWO, 2), Put(OTHER, 9)]
        )
        changes = await anext(watch)
    assert changes.revision == revision
    assert changes.values == {ONE.path: None, TWO.path: await store.get(TWO)}


async def test_a_watch_reports_nothing_of_other_paths(store: MetadataStore) -> None:
    async with store.watch(THINGS) as watch:
        await anext(watch)
        await store.put(OTHER, 9)
        revision = await store.put(ONE, 1)
        changes = await anext(watch)
    assert (changes.revision, list(changes.values)) == (revision, [ONE.path])


async def test_a_late_reader_of_a_watch_gets_the_newest_values(
    store: MetadataStore,
) -> None:
    async with store.watch(THINGS) as watch:
        await anext(watch)
        for value in range(20):
            last = await store.put(ONE, value)
            await store.put(TWO, value)
        await store.delete(TWO)
        last = await store.revision()
        seen, revisions = {}, []
        while not revisions or revisions[-1] < last:
            changes = await anext(watch)
            seen |= changes.values
            revisions.append(changes.revision)
    assert revisions == sorted(revisions)
    assert (seen[ONE.path].value, seen[TWO.path]) == (19, None)


async def test_watch_leaves_out_a_value_of_another_type_and_goes_on(
    store: MetadataStore,
) -> None:
    async with store.watch(THINGS) as watch:
        await anext(watch)
        await store.put(key_of(ONE.path, str), "one")
        changes = await anext(watch)
        assert (changes.values, changes.damaged) == ({}, {ONE.path})
        assert ONE.path in store.damaged
        await store.put(ONE, 1)
        changes = await anext(watch)
        assert (changes.values[ONE.path].value, changes.damaged) == (1, set())
    assert not len(store.damaged)


async def test_deleted_value_is_not_damaged_any_more(store: MetadataStore) -> None:
    await store.put(key_of(ONE.path, str), "one")
    with pytest.raises(Corrupt, match=ONE.path):
        await store.get(ONE)
    assert ONE.path in store.damaged
    await store.delete(ONE)
    assert await store.get(ONE) is None
    assert ONE.path not in store.damaged


async def test_scan_of_valid_values_fills_its_pages(store: MetadataStore) -> None:
    for number in range(6):
        await store.put(THINGS.key(number), number)
    for number in (0, 1, 3):
        await store.put(key_of(THINGS.key(number).path, str), "damaged")
    for limit in (1, 2, 3, 4, 10, None):
        found = await store.scan_valid(THINGS, limit=limit)
        assert [each.value for _, each in found] == [2, 4, 5][:limit]
    after = THINGS.key(2).path
    found = await store.scan_valid(THINGS, after=after, limit=2)
    assert [each.value for _, each in found] == [4, 5]
    assert len(await store.paths(THINGS)) == 6
    with pytest.raises(Corrupt):
        await store.scan(THINGS)


async def test_key_that_is_no_name_of_a_value_is_damaged(store: MetadataStore) -> None:
    numbered = prefix_of("/numbered/", int, int)
    async with store.watch(numbered) as watch:
        await anext(watch)
        await store.put(numbered.key("x"), 1)
        await store.put(numbered.key("2"), 2)
        seen: dict[str, object] = {}
        while not seen:
            changes = await anext(watch)
            assert not changes.damaged
            seen |= changes.values
    assert [*seen] == [numbered.key("2").path]
    assert numbered.key("x").path in store.damaged


async def test_several_watches_are_independent(store: MetadataStore) -> None:
    async with store.watch(THINGS) as one, store.watch(THINGS.within("deep")) as deep:
        await anext(one)
        await anext(deep)
        await store.put(ONE, 1)
        await store.put(THINGS.key("deep/er"), 2)
        assert list((await anext(deep)).values) == ["/things/deep/er"]
        found = dict((await anext(one)).values)
        while len(found) < 2:
            found |= (await anext(one)).values
    assert found.keys() == {ONE.path, "/things/deep/er"}


async def test_scan_in_pages_finds_every_path_once(store: MetadataStore) -> None:
    for number in range(7):
        await store.put(THINGS.key(str(number)), number)
    await store.put(OTHER, 1)
    found, after = [], ""
    while page := await store.scan(THINGS, after=after, limit=3):
        assert len(page) <= 3
        found += [stored.value for _, stored in page]
        after = page[-1][0]
    assert found == list(range(7))
