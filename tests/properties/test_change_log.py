"""Changes of metadata in ZooKeeper are made once, in order, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pydanube.aio.tasks import gather, task_scope
from pydanube.model.errors import MetadataUnavailable, RevisionConflict
from pydanube_zookeeper.change_log import LOGGED_BYTES_MAX, ChangeLog
from pydanube_zookeeper.pure.nodes import Nodes, Write
from support.fakes.memory_zookeeper import Fate, MemoryClient, MemoryZookeeper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube_broker.metadata.store import Revision, Stored
    from pydanube_zookeeper.replica import Replica

NODES = Nodes("c")
PATHS = ("/a", "/b")
LARGE = b"x" * (LOGGED_BYTES_MAX + 1)

UNANSWERED = {Fate.LOST, Fate.UNANSWERED, Fate.LATE}
Step = tuple[str, str, list[Fate]]

FATES = st.lists(st.sampled_from(Fate), max_size=4)
STEPS = st.tuples(
    st.sampled_from(PATHS),
    st.sampled_from(["put", "put large", "expect absent", "delete", "nothing", "get"]),
    FATES,
)
ROUNDS = st.lists(st.tuples(st.none() | STEPS, st.none() | STEPS), max_size=8)
"""The steps of both writers that are taken at the same time."""


@dataclass
class Writer:
    """A store object, and the values that it has reported."""

    log: ChangeLog
    client: MemoryClient
    reported: dict[str, Stored[bytes] | None] = field(default_factory=dict)
    revisions: list[Revision] = field(default_factory=list)
    no_answers_min: int = 1
    """A change with fewer attempts without an answer must not fail."""
    own: list[Revision] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)


@dataclass
class Tried:
    """A change that a writer has tried to make."""

    value: bytes
    revision: Revision | None = None
    """None: it was not made, or nobody knows."""
    has_failed: bool = False
    before: int | None = None
    """The revision of the store after the writer's next change."""


def new_writer(zookeeper: MemoryZookeeper, entries_max: int) -> Writer:
    client = MemoryClient(zookeeper)

    def on_values(
        revision: Revision, values: Mapping[str, Stored[bytes] | None]
    ) -> None:
        writer.revisions.append(revision)
        writer.reported.update(values)

    log = ChangeLog(
        client,
        NODES,
        on_values=on_values,
        on_own_change=lambda revision, _: writer.own.append(revision),
        entries_max=entries_max,
    )
    is_long = entries_max > 100
    writer = Writer(log, client, no_answers_min=client.attempts_max if is_long else 1)
    return writer


def made_in(zookeeper: MemoryZookeeper) -> dict[bytes, list[int]]:
    """Return the revisions at which each value was written."""
    found: dict[bytes, list[int]] = {}
    for path, value, zxid in zookeeper.written:
        if path.startswith(NODES.values):
            found.setdefault(value, []).append(zxid)
    return found


def plan_of(kind: str, path: str, value: bytes):
    def plan(replica: Replica) -> Mapping[str, Write | None]:
        if kind == "nothing":
            return {}
        if kind == "delete":
            return {path: None}
        if kind == "expect absent" and replica.get(path) is not None:
            raise RevisionConflict(path)
        return {path: Write(value=value)}

    return plan


async def take(
    zookeeper: MemoryZookeeper, writer: Writer, step: Step, value: bytes
) -> None:
    """Take one step, and note what is known about its change."""
    path, kind, fates = step
    if kind == "get":
        before = zookeeper.zxid
        await writer.log.refresh()
        assert writer.log.replica.position.revision >= last_change(zookeeper, before)
        return
    writer.client.fates = list(fates)
    this = Tried(value + (LARGE if kind == "put large" else b""))
    plan = plan_of(kind, path, this.value)
    was_absent, written_count = path not in stored_in(zookeeper), len(zookeeper.written)
    try:
        revision, paths = await writer.log.commit(plan)
    except (MetadataUnavailable, asyncio.CancelledError):
        this.has_failed = True
    except RevisionConflict:
        # The replica was current, and nobody made the path meanwhile.
        assert not (was_absent and len(zookeeper.written) == written_count)
    else:
        this.revision = revision if paths else None
    if this.has_failed:
        used = fates[: len(fates) - len(writer.client.fates)]
        no_answers = sum(fate in UNANSWERED for fate in used)
        # A short log may have forgotten a change without an answer.
        assert Fate.CANCELLED in used or no_answers >= writer.no_answers_min
    writer.client.fates = []
    if not this.has_failed:
        for earlier in writer.tried:
            earlier.before = earlier.before or zookeeper.zxid
    if kind in {"put", "put large", "expect absent"}:
        writer.tried.append(this)


def has_large_values(rounds: list[tuple[Step | None, Step | None]]) -> bool:
    return any(step and step[1] == "put large" for steps in rounds for step in steps)


def last_change(zookeeper: MemoryZookeeper, zxid: int) -> int:
    """Return the revision of the newest change up to *zxid*."""
    changes = (at for path, _, at in zookeeper.written if path == NODES.head)
    return max((at for at in changes if at <= zxid), default=0)


def check_changes(writer: Writer, made: dict[bytes, list[int]]) -> None:
    """Check that each change was made at most once, and not too late."""
    for each in writer.tried:
        found = made.get(each.value, [])
        if not each.has_failed:
            assert found == ([] if each.revision is None else [each.revision])
        elif found:
            assert len(found) == 1
            assert found[0] <= (each.before or found[0])


@given(ROUNDS, st.sampled_from([1, 3, 500]), st.booleans())
async def test_changes_without_answers_are_made_once_and_in_order(
    rounds: list[tuple[Step | None, Step | None]], entries_max: int, is_following: bool
) -> None:
    zookeeper = MemoryZookeeper()
    writers = [new_writer(zookeeper, entries_max) for _ in range(2)]
    async with task_scope() as tasks:
        for writer in writers:
            await writer.log.open()
            # Otherwise, a writer learns of changes only when it needs to; the log then
            # must have all of them.
            if is_following or entries_max < 500 or has_large_values(rounds):
                tasks.run(writer.log.follow())
        for number, steps in enumerate(rounds):
            await gather(
                take(zookeeper, writer, step, f"{number} {at}".encode())
                for at, (writer, step) in enumerate(zip(writers, steps, strict=True))
                if step is not None
            )
        zookeeper.execute_late()
        for writer in writers:
            await writer.log.refresh()
            assert values_of(writer) == stored_in(zookeeper)
            present = {p: each for p, each in writer.reported.items() if each}
            assert present == dict(writer.log.replica.values)
            assert writer.revisions == sorted(set(writer.revisions))
            check_changes(writer, made_in(zookeeper))


def values_of(writer: Writer) -> dict[str, tuple[bytes, int]]:
    return {
        path: (each.value, each.revision)
        for path, each in writer.log.replica.values.items()
    }


def stored_in(zookeeper: MemoryZookeeper) -> dict[str, tuple[bytes, int]]:
    """Return the values of the nodes, and their revisions."""
    prefix = f"{NODES.values}/"
    return {
        NODES.path_of(name.removeprefix(prefix))[0]: (node.data, node.mzxid)
        for name, node in zookeeper.nodes.items()
        if name.startswith(prefix)
    }
