"""The SQLite file of several processes; conformance tests cover what stores share."""

from __future__ import annotations

import asyncio
import sys
from asyncio import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import (
    DiskFull,
    MetadataUnavailable,
    RevisionConflict,
    SessionLost,
)
from pydanube_broker.metadata import shared_sqlite
from pydanube_broker.metadata.process_sessions import is_over
from pydanube_broker.metadata.shared_sqlite import (
    open_shared_sqlite,
    sessions_directory,
)
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import ABSENT, Put, Unchanged
from support.drivers import metadata_process
from support.drivers.metadata_process import COUNTERS, HELD, THINGS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ONE, TWO = THINGS.key("one"), THINGS.key("two")

PATIENCE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores learn of the others only because they are told."""
    monkeypatch.setattr(shared_sqlite, "LOOK_INTERVAL_S", 3600.0)


@asynccontextmanager
async def running(path: Path, *arguments: str) -> AsyncIterator[subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, metadata_process.__file__, str(path), *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def execute(store: Any, statement: str) -> list[Any]:
    """Execute a statement on the connection of *store*."""
    connection = store._file._connection  # noqa: SLF001
    work = lambda: connection.execute(statement).fetchall()  # noqa: E731
    return await store._run(work)  # noqa: SLF001


def thread_of(store: Any) -> Any:
    return store._thread  # noqa: SLF001


async def line_of(process: subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.usefixtures("no_looking")
async def test_changes_of_another_store_are_watched(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
        second.watch(THINGS) as watch,
    ):
        assert (await anext(watch)).values == {}
        async with asyncio.timeout(PATIENCE_S):
            revision = await first.transaction([], [Put(ONE, 1), Put(TWO, 2)])
            changes = await anext(watch)
            assert changes.revision == revision
            assert {path: each.value for path, each in changes.values.items()} == {
                ONE.path: 1,
                TWO.path: 2,
            }
            await first.delete(ONE)
            assert (await anext(watch)).values == {ONE.path: None}


async def test_changes_of_another_store_are_not_reported_as_own(path: Path) -> None:
    reported: list[object] = []
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
        second.watch(THINGS) as watch,
    ):
        await anext(watch)
        with second.reporting(lambda *change: reported.append(change)):
            await first.put(ONE, 1)
            await anext(watch)
            own = await second.put(TWO, 2)
            await anext(watch)
    assert reported == [(own, [TWO.path])]


async def test_process_that_missed_too_many_changes_reads_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sqlite, "CHANGES_KEPT", 3)
    monkeypatch.setattr(shared_sqlite, "TRIM_INTERVAL", 1)
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
    ):
        await first.put(ONE, 1)
        async with second.watch(THINGS) as watch:
            assert [*(await anext(watch)).values] == [ONE.path]
            # It is late, because its thread has other work.
            begun, go_on = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def stand_still() -> None:
                loop.call_soon_threadsafe(begun.set)
                asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

            still = loop.run_in_executor(thread_of(second), stand_still)
            await begun.wait()
            await first.delete(ONE)
            for value in range(10):
                await first.put(TWO, value)
            go_on.set()
            await still
            changes = await anext(watch)
            seen = {path: each and each.value for path, each in changes.values.items()}
            assert seen == {ONE.path: None, TWO.path: 9}


async def test_only_one_of_two_stores_creates_a_key(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
    ):

        async def create(store: Any, value: int) -> int | None:
            try:
                await store.transaction([Unchanged(ONE, ABSENT)], [Put(ONE, value)])
            except RevisionConflict:
                return None
            return value

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(create(store, value))
                for value, store in enumerate((first, second))
            ]
        created = [each.result() for each in tasks if each.result() is not None]
        assert created == [(await first.get(ONE)).value]


async def test_store_waits_for_the_transaction_of_another_one(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
    ):
        await execute(first, "BEGIN IMMEDIATE")
        async with asyncio.TaskGroup() as group:
            put = group.create_task(second.put(ONE, 1))
            # Reads go on in the other process.
            assert await first.get(ONE) is None
            await execute(first, "COMMIT")
        assert await first.get(ONE) is not None
        assert put.done()


async def test_full_disk_refuses_changes_of_one_process_and_allows_reads(
    path: Path,
) -> None:
    asked = []
    async with (
        open_shared_sqlite(path, "1", make_room=lambda: bool(asked.append(1))) as first,
        open_shared_sqlite(path, "2") as second,
    ):
        await first.put(ONE, 1)
        await execute(first, "PRAGMA max_page_count = 6")
        with pytest.raises(DiskFull):
            await first.transaction(
                [], [Put(THINGS.key(f"{at:05}"), at) for at in range(1000)]
            )
        assert asked
        for store in (first, second):
            assert [each.value for _, each in await store.scan(THINGS)] == [1]
        await second.put(TWO, 2)
        assert (await first.get(TWO)).value == 2


# Sessions.


@pytest.mark.usefixtures("no_looking")
async def test_closed_session_is_over_for_others(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
        second.watch(HELD) as watch,
    ):
        await anext(watch)
        async with asyncio.timeout(PATIENCE_S):
            async with first.open_session(1.0) as session:
                assert not is_over(sessions_directory(path), session.session_id)
                await first.transaction([], [Put(HELD.key("x"), 1, session)])
                assert (await anext(watch)).values
            assert (await anext(watch)).values == {HELD.key("x").path: None}
        assert is_over(sessions_directory(path), session.session_id)


async def test_replaced_process_changes_nothing(path: Path) -> None:
    key = HELD.key("x")
    async with (
        open_shared_sqlite(path, "1") as first,
        open_shared_sqlite(path, "2") as second,
        first.open_session(1.0) as session,
    ):
        revision = await first.transaction([], [Put(key, 1, session)])
        first.guard(session, key, revision)
        await first.put(ONE, 1)
        await second.put(key, 2)
        with pytest.raises(SessionLost):
            await first.put(ONE, 2)
        await session.lost.wait()
        assert (await second.get(ONE)).value == 1


async def test_session_without_its_file_is_lost(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as store,
        store.open_session(1.0) as session,
    ):
        await store.transaction([], [Put(HELD.key("x"), 1, session)])
        for file in sessions_directory(path).glob("*.session"):
            file.unlink()
        with pytest.raises(SessionLost):
            await store.transaction([], [Put(HELD.key("y"), 1, session)])
        await session.lost.wait()


async def test_file_of_one_process_opens_for_several_and_back(path: Path) -> None:
    async with open_sqlite(path) as alone:
        await alone.put(ONE, 1)
    async with open_shared_sqlite(path, "1") as shared:
        await shared.put(TWO, 2)
    async with open_sqlite(path) as alone:
        assert [each.value for _, each in await alone.scan(THINGS)] == [1, 2]
        assert await alone.revision() == 2


async def test_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable, match="cannot be used"):
        async with open_shared_sqlite(tmp_path / "no" / "such" / "file", "1"):
            pass


# Processes.


async def test_counter_of_four_processes_loses_nothing(path: Path) -> None:
    async with (
        open_shared_sqlite(path, "1") as store,
        store.watch(COUNTERS) as watch,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(4):
            group.create_task(_count(path))
        value = 0
        async with asyncio.timeout(PATIENCE_S):
            while value < 200:
                for stored in (await anext(watch)).values.values():
                    assert stored.value > value
                    value = stored.value


async def _count(path: Path) -> None:
    async with running(path, "count", "50") as process:
        assert await process.wait() == 0


async def test_next_process_holds_the_key_of_one_that_was_killed(path: Path) -> None:
    async with (
        running(path, "hold") as one,
        running(path, "hold") as two,
        running(path, "hold") as three,
        asyncio.TaskGroup() as group,
    ):
        waiting = {group.create_task(line_of(each)): each for each in (one, two, three)}
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # Only one of them holds it.
            (task,) = done
            assert task.result() == "held"
            waiting.pop(task).kill()


async def test_process_that_is_killed_at_any_point_leaves_the_store_whole(
    path: Path,
) -> None:
    async with (
        open_shared_sqlite(path, "1") as store,
        store.watch(HELD) as held,
        running(path) as processes,
    ):
        answer, points = "killed", 0
        while answer == "killed":
            points += 1
            processes.stdin.write(f"{points}\n".encode())
            answer = await line_of(processes)
            while await store.scan(HELD):
                await anext(held)
            one, two = await store.get_each([ONE, TWO])
            assert one == two
        assert answer == "done"
        assert one.value == points
        assert points > 30
        # Nothing is locked, and the file is sound.
        await store.put(ONE, 0)
        check = await execute(store, "PRAGMA integrity_check")
        assert check == [("ok",)]


async def test_keys_of_killed_processes_are_deleted_by_the_next_one(
    path: Path,
) -> None:
    async with running(path, "hold") as process:
        assert await line_of(process) == "held"
    async with open_shared_sqlite(path, "1") as store:
        assert await store.scan(HELD) == []
