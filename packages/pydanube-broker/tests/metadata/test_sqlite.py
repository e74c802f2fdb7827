"""The store in an SQLite file; conformance tests cover the common behaviour."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import (
    BrokerError,
    Closed,
    DiskFull,
    MetadataUnavailable,
    RevisionConflict,
)
from pydanube_broker.metadata import sqlite as sqlite_module
from pydanube_broker.metadata.key import Key, prefix_of
from pydanube_broker.metadata.sqlite import Job, Jobs, open_sqlite
from pydanube_broker.metadata.store import ABSENT, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

THINGS = prefix_of("/things/", int)
ONE = THINGS.key("one")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


def in_store(path: Path, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with open_sqlite(path) as store:
            return await work(store)

    return asyncio.run(main())


def fill(path: Path, count: int = 1) -> None:
    in_store(
        path,
        lambda store: store.transaction(
            [], [Put(THINGS.key(f"{at:05}"), at) for at in range(count)]
        ),
    )


def test_values_and_revision_survive_a_restart(path: Path) -> None:
    in_store(path, lambda store: store.put(ONE, 7))
    in_store(path, lambda store: store.put(THINGS.key("two"), 8))
    in_store(path, lambda store: store.delete(THINGS.key("two")))
    assert in_store(path, lambda store: store.get(ONE)).value == 7
    assert in_store(path, lambda store: store.revision()) == 3


def test_commit_is_synced(path: Path) -> None:
    async def modes(store: Any) -> list[object]:
        def ask() -> list[object]:
            execute = store._file._connection.execute
            return [
                execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous")
            ]

        return await store._run(ask)

    full = 2
    assert in_store(path, modes) == ["wal", full]


def test_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is a shopping list, and a long one" * 100)
    with pytest.raises(MetadataUnavailable, match="damaged or not a metadata store"):
        in_store(path, lambda store: store.revision())


@pytest.mark.parametrize("page_share", [0, 0.25])
def test_truncated_file_is_refused(path: Path, page_share: float) -> None:
    fill(path, 1000)
    content = path.read_bytes()
    pages = len(content) // 4096
    path.write_bytes(content[: int((pages // 2 + page_share) * 4096)])
    with pytest.raises(MetadataUnavailable, match=r"metadata\.sqlite is damaged"):
        in_store(path, lambda store: store.scan(THINGS))


def test_file_truncated_within_its_last_page_is_refused(path: Path) -> None:
    fill(path, 1000)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MetadataUnavailable, match="its last page is incomplete"):
        in_store(path, lambda store: store.revision())


def test_database_of_another_program_is_refused_and_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE albums (title TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(MetadataUnavailable, match="of another program"):
        in_store(path, lambda store: store.revision())
    assert path.read_bytes() == before


def test_newer_format_is_refused(path: Path) -> None:
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(MetadataUnavailable, match="has format 99"):
        in_store(path, lambda store: store.revision())


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable, match="cannot be opened"):
        in_store(tmp_path / "no" / "such" / "file", lambda store: store.revision())


def test_locked_file_is_unavailable_and_not_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "LOCK_TIMEOUT_S", 0.0)
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MetadataUnavailable, match="locked by another program"):
            in_store(path, lambda store: store.put(ONE, 1))
        other.execute("ROLLBACK")
    finally:
        other.close()
    in_store(path, lambda store: store.put(ONE, 1))
    assert in_store(path, lambda store: store.get(ONE)).value == 1


def test_full_disk_refuses_writes_and_allows_reads(path: Path) -> None:
    async def work(store: Any) -> None:
        await store.put(ONE, 1)
        await store._run(
            lambda: store._file._connection.execute("PRAGMA max_page_count = 3")
        )
        with pytest.raises(DiskFull):
            await store.transaction(
                [], [Put(THINGS.key(f"{at:05}"), at) for at in range(1000)]
            )
        assert [value.value for _, value in await store.scan(THINGS)] == [1]
        assert await store.revision() == 1

    in_store(path, work)


async def test_change_is_retried_if_room_was_made(path: Path) -> None:
    made: list[int] = []

    def make_room() -> bool:
        made.append(1)
        connection = stores[0]._file._connection
        connection.execute("PRAGMA max_page_count = 1000")
        return True

    stores: list[Any] = []
    async with open_sqlite(path, make_room=make_room) as store:
        stores.append(store)
        await store.put(ONE, 1)
        await store._run(
            lambda: store._file._connection.execute("PRAGMA max_page_count = 3")
        )
        await store.transaction(
            [], [Put(THINGS.key(f"{at:05}"), at) for at in range(1000)]
        )
        assert len(await store.scan(THINGS)) == 1001
        assert await store.revision() == 2
    assert made == [1]


def test_cancelled_change_is_complete_and_reported(
    path: Path,
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def encode(value: int) -> bytes:
        begun.set()
        may_go_on.wait()
        return str(value).encode()

    async def work(store: Any) -> None:
        changes = []
        with store.reporting(lambda *change: changes.append(change)):
            async with asyncio.TaskGroup() as tasks:
                putting = tasks.create_task(store.put(Key(ONE.path, encode, int), 1))
                await asyncio.to_thread(begun.wait)
                putting.cancel()
                may_go_on.set()
            assert putting.cancelled()
            assert (await store.get(ONE)).value == 1
        assert changes == [(1, [ONE.path])]

    in_store(path, work)


def test_changes_are_made_in_the_order_of_the_calls(path: Path) -> None:
    async def work(store: Any) -> list[int]:
        async with asyncio.TaskGroup() as tasks:
            puts = [tasks.create_task(store.put(ONE, value)) for value in range(20)]
        assert [put.result() for put in puts] == list(range(1, 21))
        return (await store.get(ONE)).value

    assert in_store(path, work) == 19


async def test_closed_store_raises_closed(path: Path) -> None:
    async with open_sqlite(path) as store:
        pass
    with pytest.raises(Closed):
        await store.get(ONE)


def test_keys_of_a_process_that_ended_without_closing_its_session_are_deleted(
    path: Path,
) -> None:
    # As if the process had been killed: the session is never closed.
    connection = sqlite3.connect(path)

    async def work(store: Any) -> None:
        async with store.open_session(10.0) as session:
            await store.transaction([], [Put(ONE, 1, session)])
            await store.put(THINGS.key("two"), 2)
            connection.execute("BEGIN")
            connection.execute("SELECT * FROM entries").fetchall()
            copy = sqlite3.connect(path.with_name("killed.sqlite"))
            connection.backup(copy)
            copy.close()

    in_store(path, work)
    connection.close()
    killed = path.with_name("killed.sqlite")
    assert in_store(killed, lambda store: store.revision()) == 3
    found = in_store(killed, lambda store: store.scan(THINGS))
    assert [each.value for _, each in found] == [2]


async def test_a_watch_ends_when_the_store_closes(path: Path) -> None:
    async with open_sqlite(path) as store, store.watch(THINGS) as watch:
        await anext(watch)
        store.close()
        with pytest.raises(Closed, match="the metadata store is closed"):
            await anext(watch)


async def made_together(
    store: Any, changes: Sequence[Coroutine[Any, Any, Any]]
) -> tuple[list[Any], int]:
    """Return the outcomes of changes that waited at the same time, and the commits."""
    may_go, statements = threading.Event(), list[str]()
    outcomes: list[Any] = [None] * len(changes)

    def hold() -> None:
        store._file._connection.set_trace_callback(statements.append)
        may_go.wait()

    async def note(at: int, change: Coroutine[Any, Any, Any]) -> None:
        try:
            outcomes[at] = await change
        except BrokerError as error:
            outcomes[at] = error

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store._run(hold))
        for at, change in enumerate(changes):
            tasks.create_task(note(at, change))
        # All have begun, and wait for the thread.
        await asyncio.sleep(0)
        may_go.set()
    return outcomes, statements.count("COMMIT")


async def test_changes_that_wait_are_synced_together(path: Path) -> None:
    async with open_sqlite(path) as store:
        reported: list[tuple[int, list[str]]] = []
        with store.reporting(lambda *change: reported.append(change)):
            puts = [store.put(THINGS.key(f"{at:02}"), at) for at in range(20)]
            outcomes, commits = await made_together(store, puts)
            await asyncio.sleep(0)
        assert commits == 1
        assert outcomes == list(range(1, 21))
        assert reported == [(at + 1, [f"/things/{at:02}"]) for at in range(20)]


async def test_change_that_is_refused_leaves_those_that_wait_with_it(
    path: Path,
) -> None:
    async with open_sqlite(path) as store:
        changes = [
            store.put(ONE, 1, expected=ABSENT),
            store.put(ONE, 2, expected=ABSENT),
            store.put(THINGS.key("two"), 2),
        ]
        outcomes, commits = await made_together(store, changes)
        assert commits == 1
        assert outcomes[0] == 1
        assert isinstance(outcomes[1], RevisionConflict)
        assert outcomes[2] == 2
        assert (await store.get(ONE)).value == 1


async def test_change_that_breaks_a_commit_is_made_alone(path: Path) -> None:
    async with open_sqlite(path) as store:
        twice = Put(ONE, 1)
        changes = [store.put(THINGS.key("two"), 2), store.transaction([], [twice] * 2)]
        with pytest.raises(ExceptionGroup):
            await made_together(store, changes)
        assert (await store.get(THINGS.key("two"))).value == 2
        assert await store.get(ONE) is None


def jobs_of(*works: tuple[Any, bool]) -> tuple[Jobs, list[Job]]:
    """Return jobs that wait: what each does, and whether it is slow."""
    jobs = Jobs()
    added = [Job(work, asyncio.Future(), is_slow) for work, is_slow in works]
    assert [jobs.add(each) for each in added] == [True] + [False] * (len(added) - 1)
    return jobs, added


def call(work: Any) -> Any:
    return work()


async def test_jobs_that_wait_wake_the_loop_once() -> None:
    jobs, added = jobs_of(*((lambda n=n: n, False) for n in range(3)))
    delivered: list[list[Job]] = []
    jobs.do_all(call, delivered.append)
    assert delivered == [added]
    assert [each.result for each in added] == [0, 1, 2]
    # The thread must be told of the next one.
    assert jobs.add(added[0])


async def test_outcomes_do_not_wait_for_a_slow_job_behind_them() -> None:
    delivered: list[list[Job]] = []
    seen: list[int] = []
    jobs, added = jobs_of(
        (lambda: 1, False), (lambda: seen.append(len(delivered)), True)
    )
    jobs.do_all(call, delivered.append)
    assert seen == [1]
    assert delivered == [[added[0]], [added[1]]]


async def test_cancelled_job_is_left_out_and_a_failed_one_fails_alone() -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    jobs, (cancelled, failed, other) = jobs_of(
        (lambda: pytest.fail("it was done"), False), (fail, False), (lambda: 1, False)
    )
    cancelled.future.cancel()
    delivered: list[list[Job]] = []
    jobs.do_all(call, delivered.append)
    assert delivered == [[failed, other]]
    assert isinstance(failed.error, ValueError)
    assert other.result == 1
