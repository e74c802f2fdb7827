"""The values of the model of takeovers: journals, sessions, and worlds."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydanube_broker.cluster.pure.ownership import ChangeShard, Ownership, PrepareMove
from pydanube_broker.metadata.cluster_records import ShardRecord

# Entries of journals.


class Opened(NamedTuple):
    """The first entry of an adoption; it replaces what the journal said before."""

    epoch: int
    base: int
    producers: frozenset[str]
    length: int
    """The number of messages that follow."""


class Message(NamedTuple):
    epoch: int
    offset: int
    name: str
    is_adopted: bool = False


class Left(NamedTuple):
    epoch: int


Entry = Opened | Message | Left


class Put(NamedTuple):
    """A group of a journal."""

    entry: Entry
    is_stored: bool = False
    is_known: bool = False
    """Whether the session knows that it is stored."""
    is_refused: bool = False


class First(NamedTuple):
    """The first group that a journal's record names, and the snapshot in it."""

    number: int = 0
    base: int = 0
    epoch: int = 0
    producers: frozenset[str] = frozenset()


class Log(NamedTuple):
    """The messages of a shard that are not sealed."""

    base: int = 0
    tail: tuple[str, ...] = ()
    producers: frozenset[str] = frozenset()

    @property
    def end(self) -> int:
        return self.base + len(self.tail)


class Session(NamedTuple):
    """A process, its lease, its journal, and its part in the shard."""

    machine: Ownership
    lease: int = 0
    """0: held; 1: over, by the session's clock; 2: gone from the store."""
    is_dead: bool = False
    """Whether its process has ended, so that others can have its lock."""
    change: ChangeShard | None = None
    """The transaction under way."""
    source_first: First = First()
    """The first group of the source, as it was when its journal was frozen."""
    prepares: PrepareMove | None = None
    """The reading that is to prepare a move."""
    ahead: tuple[str, First] | None = None
    """The session that was read ahead, and its first group at that time."""
    ahead_end: int = 0
    """The number of the group at which it stopped."""
    read: Log | None = None
    """What was read before the fence, if that rule is left out."""
    manifest_read: int | None = None
    """The end of the manifest before the claim, if it is not read after that."""
    log: Log = Log()
    """What is in memory, with messages that are not committed yet."""
    puts: tuple[Put, ...] = ()
    fences: frozenset[int] = frozenset()
    first: First = First()
    is_frozen: bool = False
    removed: int = 0
    """The number of groups whose objects are removed."""
    is_unneeded: bool = False
    """Whether a controller has found that nobody needs the journal."""
    was_unnamed: bool = False
    """Whether it read the shards too early, if that rule is left out."""
    seal: tuple[int, int, tuple[str, ...]] | None = None
    """A manifest change under way: epoch, base and messages."""

    def committed(self) -> int:
        """Return the number of groups that the session knows to be committed."""
        count = 0
        for put in self.puts:
            if not put.is_known:
                break
            count += 1
        return count


class World(NamedTuple):
    """Everything, at one moment."""

    record: ShardRecord
    revision: int
    manifest: tuple[str, ...]
    sessions: tuple[Session, ...]
    late: tuple[ChangeShard, ...] = ()
    """Transactions whose sender does not wait for them."""
    acked: tuple[str | None, ...] = (None, None)
    """The message that was acknowledged at each offset."""
    refused: frozenset[str] = frozenset()
    moves: int = 0
    cancels: int = 0
    seals: int = 0
    late_count: int = 0


def is_there(session: Session, number: int) -> bool:
    """Return whether the store has a group of the session's journal."""
    return (
        session.removed <= number < len(session.puts) and session.puts[number].is_stored
    )


def with_session(world: World, at: int, **changes: Any) -> World:
    """Return *world* with another state of a session."""
    sessions = list(world.sessions)
    sessions[at] = sessions[at]._replace(**changes)
    return world._replace(sessions=tuple(sessions))


def with_group(world: World, at: int, number: int, **changes: Any) -> World:
    puts = list(world.sessions[at].puts)
    puts[number] = puts[number]._replace(**changes)
    return with_session(world, at, puts=tuple(puts))
