"""
A small model of a cluster that takes over and moves one shard: the possible steps.

Three sessions, a metadata store and an object store are one value, a World.  The
decisions about the shard are those of ``Ownership`` and of the controller.

The journals are simplified: a group is one entry, and fencing is one step;
test_group_commits.py explores these.  A paused process needs no action of its own:
every process may wait between any two steps, while its lease expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from pydanube_broker.cluster.pure.moves import cancel, direct
from pydanube_broker.cluster.pure.ownership import (
    Adopt,
    AppendLeft,
    ChangeShard,
    FenceJournal,
    Look,
    Ownership,
    PrepareMove,
    ReadShard,
    ShardView,
    Stage,
    Step,
)
from pydanube_broker.metadata.cluster_records import ShardRecord, ShardState
from support.models.takeover_rules import Bounds, Rules
from support.models.takeover_worlds import (
    Entry,
    First,
    Left,
    Log,
    Message,
    Opened,
    Put,
    Session,
    World,
    is_there,
    with_group,
    with_session,
)

MESSAGES = ("x", "y")
"""Messages of different idempotent producers, each of which sends one."""


class BrokenPromise(Exception):
    """The world broke a promise."""


Action = tuple[str, Callable[[], World]]


def name_of(at: int) -> str:
    return "ABC"[at]


@dataclass(frozen=True, slots=True)
class Returning(Ownership):
    """Opens the shard again after SHARD_LEFT, if the move was cancelled."""

    def on_view(self, view: ShardView) -> Step:
        record = view.record
        if record.owner == self.session and self.stage is Stage.LEFT:
            if record.state is ShardState.OPEN:
                return replace(self, stage=Stage.SERVING), ()
            if record.target is None:
                opened = msgspec.structs.replace(record, state=ShardState.OPEN)
                return self, (ChangeShard(opened, view.revision),)
        return Ownership.on_view(self, view)


class Model:
    """The steps that are possible in a world."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds
        self.names = MESSAGES[: bounds.messages]

    def start(self) -> World:
        """Return a world in which A serves an empty shard."""
        machine = Ownership if self.rules.no_way_back_after_left else Returning
        sessions = [Session(machine(name_of(at))) for at in range(self.bounds.sessions)]
        serving = replace(sessions[0].machine, stage=Stage.SERVING, epoch=1)
        opened = Put(Opened(1, 0, frozenset(), 0), is_stored=True, is_known=True)
        sessions[0] = sessions[0]._replace(machine=serving, puts=(opened,))
        record = ShardRecord(
            state=ShardState.OPEN, epoch=1, owner="A", source="A", source_epoch=1
        )
        return World(record, 0, (), tuple(sessions))

    def actions(self, world: World) -> Iterator[Action]:
        """Return what may happen next."""
        for at, session in enumerate(world.sessions):
            yield from self._store_actions(world, at, session)
            # Sessions that did nothing yet are alike, so the first of them acts first.
            if at > 1 and not _has_acted(world.sessions[at - 1]):
                continue
            if session.machine.stage is not Stage.OVER:
                yield from self._session_actions(world, at, session)
            if _has_acted(session):
                yield from self._lease_actions(world, at, session)
        for at in range(len(world.late)):
            yield (
                f"a late transaction arrives: {_text(world.late[at])}",
                lambda at=at: self._arrive(world, at),
            )
        yield from self._controller_actions(world)

    def check(self, world: World) -> None:
        """Raise if the world breaks a promise."""
        for at, session in enumerate(world.sessions):
            if session.machine.is_serving:
                self._check_serving(world, at, session)

    # What may happen.

    def _store_actions(
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        name = name_of(at)
        for number, put in enumerate(session.puts):
            if session.is_dead:
                # A process that has ended writes nothing more to its files.
                break
            if not put.is_stored and number not in session.fences:
                yield (
                    f"the store has {put.entry} of {name}",
                    lambda n=number: self._store(world, at, n),
                )
        if session.seal is not None:
            yield (
                f"the manifest change of {name} arrives",
                lambda: self._change_manifest(world, at),
            )
        if self.bounds.removes_journals and session.removed < len(session.puts):
            yield from self._removal_actions(world, at, session)

    def _removal_actions(
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        """A controller finds that a journal is not needed, and later removes it."""
        name, is_named = name_of(at), self._is_named(world, at)
        if self.rules.read_shards_after_absence:
            is_found = session.lease == 2 and not is_named
        else:
            is_found = session.lease == 2 and session.was_unnamed
            if not is_named and not session.was_unnamed:
                yield (
                    f"the controller finds no shard that names {name}",
                    lambda: with_session(world, at, was_unnamed=True),
                )
        if session.is_unneeded:
            yield f"the journal of {name} is removed", lambda: self._remove(world, at)
        elif is_found:
            yield (
                f"the controller finds that {name} is gone",
                lambda: with_session(world, at, is_unneeded=True),
            )

    def _is_named(self, world: World, at: int) -> bool:
        record, name = world.record, name_of(at)
        if record.owner == name:
            return True
        return record.source == name and self.rules.keep_journals_that_shards_name

    def _session_actions(  # noqa: PLR0912
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        name, machine = name_of(at), session.machine
        if session.change is None:
            machine_after, effects = machine.on_view(self._view(world, at))
            if effects or machine_after != machine:
                yield f"{name} looks", lambda: self._look(world, at)
        else:
            yield (
                f"{name} changes the shard: {_text(session.change)}",
                lambda: self._make_change(world, at),
            )
            if world.late_count < self.bounds.late_changes:
                yield (
                    f"{name} does not learn the outcome",
                    lambda: self._lose_change(world, at),
                )
        if session.prepares is not None:
            yield (
                f"{name} reads ahead in {session.prepares.session}",
                lambda: self._read_ahead(world, at),
            )
        if machine.stage is Stage.FENCING and (
            session.read is None and not self.rules.fence_before_read
        ):
            yield f"{name} reads {machine.source}", lambda: self._read_early(world, at)
        elif machine.stage is Stage.FENCING and self._can_fence(world, machine):
            yield f"{name} fences {machine.source}", lambda: self._fence(world, at)
        if machine.stage is Stage.READING:
            yield f"{name} reads {machine.source}", lambda: self._read(world, at)
        if machine.stage is Stage.SERVING:
            yield from self._publish_actions(world, at, session)
        if self.bounds.learns_late:
            for number, put in enumerate(session.puts):
                is_fence = number in session.fences
                if not put.is_known and (put.is_stored or is_fence):
                    yield (
                        f"{name} learns of group {number}",
                        lambda n=number: self._learn(world, at, n),
                    )
        if machine.is_serving and self.bounds.seals:
            yield from self._sealing_actions(world, at, session)

    def _publish_actions(
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        in_flight = sum(not put.is_known for put in session.puts)
        if in_flight >= self.bounds.in_flight:
            return
        sent = {
            put.entry.name
            for each in world.sessions
            for put in each.puts
            if type(put.entry) is Message
        }
        for index, message in enumerate(self.names):
            # Messages are alike, so the first of them is sent first.
            if index and self.names[index - 1] not in sent:
                break
            if message not in session.log.producers and message not in world.refused:
                yield (
                    f"{name_of(at)} appends {message} at {session.log.end}",
                    lambda m=message: self._append(world, at, m),
                )

    def _sealing_actions(
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        name, end = name_of(at), self._committed_end(session)
        if (
            session.seal is None
            and world.seals < self.bounds.seals
            and session.log.base < end
        ):
            yield f"{name} seals", lambda: self._seal(world, at, end)
        number = self._useless(session)
        if number > session.first.number and not session.is_frozen:
            yield (
                f"{name} records group {number} as the first",
                lambda: self._record_first(world, at, number),
            )
        if session.removed < session.first.number:
            yield (
                f"{name} removes groups before {session.first.number}",
                lambda: with_session(world, at, removed=session.first.number),
            )

    def _lease_actions(
        self, world: World, at: int, session: Session
    ) -> Iterator[Action]:
        name = name_of(at)
        if self.bounds.locks and not session.is_dead:
            yield f"the process of {name} ends", lambda: self._end_process(world, at)
        if session.lease == 0 and self.bounds.reads:
            yield (
                f"the clock of {name} says that its lease is over",
                lambda: with_session(world, at, lease=1),
            )
        elif session.lease < 2:
            yield (
                f"the lease of {name} expires",
                lambda: with_session(world, at, lease=2),
            )

    def _controller_actions(self, world: World) -> Iterator[Action]:
        view = ShardView(world.record, world.revision)
        change = direct(view, "?", tuple("ABC"))
        is_open = world.record.state is ShardState.OPEN
        if is_open and change is not None and world.moves < self.bounds.moves:
            yield (
                "the controller wants a move",
                lambda: self._control(world, change)._replace(moves=world.moves + 1),
            )
        kept = cancel(view)
        if kept is not None and world.cancels < self.bounds.cancels:
            yield (
                "the controller cancels the move",
                lambda: self._control(world, kept)._replace(cancels=world.cancels + 1),
            )

    # The metadata store.

    def _view(self, world: World, at: int) -> ShardView:
        record = world.record
        is_gone = self._is_gone(world, record.owner) or (
            not self.rules.claim_compares_absence
        )
        is_wanted = (
            record.epoch <= self.bounds.claims
            and record.owner != name_of(at)
            # Any other session may be the target.
            and (record.target is not None or self._is_left(world, record.owner))
        )
        return ShardView(record, world.revision, is_gone, is_wanted)

    def _is_left(self, world: World, owner: str | None) -> bool:
        return (
            owner is None
            or self._is_gone(world, owner)
            or (not self.rules.claim_compares_absence)
        )

    def _is_gone(self, world: World, session: str | None) -> bool:
        return session is not None and world.sessions["ABC".index(session)].lease == 2

    def _look(self, world: World, at: int) -> World:
        return self._apply(
            world, at, world.sessions[at].machine.on_view(self._view(world, at))
        )

    def _change(self, world: World, change: ChangeShard) -> World:
        """Make the transaction, if its comparisons hold."""
        rules = self.rules
        compares_revision = {
            ShardState.OPENING: rules.claim_compares_revision,
            ShardState.OPEN: rules.open_compares_revision,
            ShardState.CLOSING: True,
            ShardState.RELEASED: rules.release_compares_revision,
        }[change.record.state]
        if compares_revision and change.revision != world.revision:
            return world
        is_absent = self._is_gone(world, change.present)
        if is_absent and rules.claim_compares_own_presence:
            return world
        is_present = change.gone is not None and not self._is_gone(world, change.gone)
        if is_present and rules.claim_compares_absence:
            return world
        world = world._replace(record=change.record, revision=world.revision + 1)
        if change.freeze is not None and rules.claim_freezes_journal:
            world = with_session(world, "ABC".index(change.freeze), is_frozen=True)
        return world

    def _make_change(self, world: World, at: int) -> World:
        change = world.sessions[at].change
        assert change is not None
        world = with_session(self._change(world, change), at, change=None)
        return self._look(world, at)

    def _lose_change(self, world: World, at: int) -> World:
        change = world.sessions[at].change
        assert change is not None
        world = world._replace(
            late=(*world.late, change), late_count=world.late_count + 1
        )
        return self._look(with_session(world, at, change=None), at)

    def _arrive(self, world: World, at: int) -> World:
        change = world.late[at]
        world = world._replace(late=world.late[:at] + world.late[at + 1 :])
        return self._change(world, change)

    def _control(self, world: World, change: ChangeShard) -> World:
        return world._replace(record=change.record, revision=world.revision + 1)

    # Carrying out effects.

    def _apply(self, world: World, at: int, step: Step) -> World:
        machine, effects = step
        before = world.sessions[at].machine.stage
        world = with_session(world, at, machine=machine)
        for effect in effects:
            match effect:
                case ChangeShard():
                    world = with_session(world, at, change=effect)
                    if effect.raises_epoch and not self.rules.read_manifest_after_claim:
                        world = with_session(
                            world, at, manifest_read=len(world.manifest)
                        )
                case Adopt(epoch):
                    world = self._adopt(world, at, epoch)
                case AppendLeft():
                    world = self._begin(world, at, Left(machine.epoch))
                    if not self.rules.release_after_left_is_committed:
                        world = self._apply(world, at, machine.on_left())
                case Look():
                    world = self._look(world, at)
                case PrepareMove():
                    world = with_session(world, at, prepares=effect)
                case FenceJournal(source):
                    world = self._read_first(world, at, source)
                case ReadShard(str(source), _) if before is Stage.IDLE:
                    world = self._read_first(world, at, source)
        return world

    def _read_first(self, world: World, at: int, source: str) -> World:
        first = world.sessions["ABC".index(source)].first
        return with_session(world, at, source_first=first, read=None)

    def _read_ahead(self, world: World, at: int) -> World:
        """Read what the owner's journal has now, before the claim."""
        session = world.sessions[at]
        assert session.prepares is not None
        owner, epoch = session.prepares.session, session.prepares.epoch
        old = world.sessions["ABC".index(owner)]
        end = old.first.number
        while end not in old.fences and is_there(old, end):
            end += 1
        world = with_session(
            world, at, prepares=None, ahead=(owner, old.first), ahead_end=end
        )
        if session.machine.stage is not Stage.IDLE:
            return world
        return self._apply(world, at, session.machine.on_prepared(epoch))

    def _reading(self, world: World, at: int) -> tuple[First, int]:
        """Return the first group of the reading, and the one where it goes on."""
        session = world.sessions[at]
        first = session.source_first
        if session.ahead is None or session.ahead[0] != session.machine.source:
            return first, first.number
        can_continue = first.number <= session.ahead_end
        if can_continue or not self.rules.read_again_if_groups_were_removed:
            return session.ahead[1], session.ahead_end
        return first, first.number

    def _read_early(self, world: World, at: int) -> World:
        """Read without a fence, although the machine waits for it."""
        return with_session(world, at, read=self._fold(world, at))

    def _end_process(self, world: World, at: int) -> World:
        """Kill a process: what it has not written is lost, and its lock is free."""
        world = with_session(world, at, is_dead=True, change=None, prepares=None)
        session = world.sessions[at]
        return self._apply(world, at, session.machine.on_session_over())

    def _can_fence(self, world: World, machine: Ownership) -> bool:
        """Return whether the reader gets the lock, if the fence is one."""
        if not self.bounds.locks or not self.rules.read_only_after_the_lock_is_held:
            return True
        assert machine.source is not None
        return world.sessions["ABC".index(machine.source)].is_dead

    def _fence(self, world: World, at: int) -> World:
        machine = world.sessions[at].machine
        assert machine.source is not None
        source = "ABC".index(machine.source)
        old = world.sessions[source]
        if self.bounds.locks:
            # The lock is the fence.
            return self._apply(world, at, machine.on_fenced())
        number = self._reading(world, at)[1]
        while number not in old.fences and is_there(old, number):
            number += 1
        world = with_session(world, source, fences=old.fences | {number})
        world = self._on_fence(world, source, number)
        return self._apply(world, at, machine.on_fenced())

    def _read(self, world: World, at: int) -> World:
        session = world.sessions[at]
        machine, log = session.machine, session.read or self._fold(world, at)
        sealed = session.manifest_read
        if sealed is None:
            sealed = len(world.manifest)
        # Sealed messages are in the manifest.
        count = max(sealed - log.base, 0)
        log = Log(max(sealed, log.base), log.tail[count:], log.producers)
        if not self.rules.adopt_producers:
            log = log._replace(producers=frozenset())
        return self._apply(
            with_session(world, at, log=log, read=None), at, machine.on_read()
        )

    def _fold(self, world: World, at: int) -> Log:
        """Return what the source's journal says about the shard."""
        machine = world.sessions[at].machine
        first, end = self._reading(world, at)
        assert machine.source is not None
        session, epoch = (
            world.sessions["ABC".index(machine.source)],
            machine.source_epoch,
        )
        is_known = first.epoch == epoch or not self.rules.read_only_source_epoch
        log = Log(first.base, (), first.producers) if is_known else Log()
        number, has_left = first.number, False
        while number < end or (
            number not in session.fences and is_there(session, number)
        ):
            entry = session.puts[number].entry
            number += 1
            if entry.epoch != epoch and self.rules.read_only_source_epoch:
                continue
            match entry:
                case Opened(_, base, producers):
                    log, has_left = Log(base, (), producers), False
                case Message(_, offset, name) if not has_left:
                    if offset != log.end:
                        raise BrokenPromise(f"offset {offset} follows {log.end}")
                    tail, producers = (*log.tail, name), log.producers | {name}
                    log = log._replace(tail=tail, producers=producers)
                case Left():
                    has_left = True
        return log

    def _adopt(self, world: World, at: int, epoch: int) -> World:
        log = world.sessions[at].log
        opened = Opened(epoch, log.base, log.producers, len(log.tail))
        world = self._begin(world, at, opened)
        for offset, message in enumerate(log.tail, log.base):
            entry = Message(epoch, offset, message, is_adopted=True)
            world = self._begin(world, at, entry)
        return self._on_commit(world, at)

    def _append(self, world: World, at: int, message: str) -> World:
        session = world.sessions[at]
        log = session.log
        entry = Message(session.machine.epoch, log.end, message)
        after = log._replace(
            tail=(*log.tail, message), producers=log.producers | {message}
        )
        return self._begin(with_session(world, at, log=after), at, entry)

    def _begin(self, world: World, at: int, entry: Entry) -> World:
        return with_session(world, at, puts=(*world.sessions[at].puts, Put(entry)))

    # The object store.

    def _store(self, world: World, at: int, number: int) -> World:
        world = with_group(world, at, number, is_stored=True)
        if self.bounds.learns_late:
            return world
        return self._learn(world, at, number)

    def _on_fence(self, world: World, at: int, number: int) -> World:
        """The session finds out, if it has put that group already."""
        session = world.sessions[at]
        if self.bounds.learns_late or number >= len(session.puts):
            return world
        return self._learn(world, at, number)

    def _learn(self, world: World, at: int, number: int) -> World:
        session = world.sessions[at]
        if session.machine.stage is Stage.OVER:
            return world
        if number in session.fences:
            world = self._refuse(world, at, number)
            return self._apply(world, at, session.machine.on_session_over())
        world = with_group(world, at, number, is_known=True)
        return self._on_commit(world, at)

    def _refuse(self, world: World, at: int, number: int) -> World:
        """Refuse what is not in the journal for certain."""
        session = world.sessions[at]
        if self.rules.refuse_only_behind_the_fence:
            refused = session.puts[number:]
        else:
            refused = session.puts
        return world._replace(
            refused=world.refused
            | {
                put.entry.name
                for put in refused
                if type(put.entry) is Message
                and not put.is_known
                and not put.entry.is_adopted
                and put.entry.name not in self._sent_elsewhere(world, at)
            }
        )

    def _sent_elsewhere(self, world: World, at: int) -> set[str]:
        """Return the messages that clients have sent to other sessions, too."""
        return {
            put.entry.name
            for other, each in enumerate(world.sessions)
            for put in each.puts
            if other != at and type(put.entry) is Message and not put.entry.is_adopted
        }

    def _on_commit(self, world: World, at: int) -> World:
        """Acknowledge what is committed, and tell the machine."""
        session = world.sessions[at]
        machine = session.machine
        if self.rules.contiguous_commit:
            known = session.puts[: session.committed()]
        else:
            known = tuple(put for put in session.puts if put.is_known)
        for put in known:
            if type(put.entry) is Message and not put.entry.is_adopted:
                world = self._ack(world, put.entry)
        is_all = session.committed() == len(session.puts)
        if machine.stage is Stage.ADOPTING and (
            is_all or not self.rules.open_after_adoption_is_committed
        ):
            step = machine.on_adopted()
            if not self.rules.serve_only_after_open:
                step = replace(machine, stage=Stage.SERVING), step[1]
            return self._apply(world, at, step)
        if machine.stage is Stage.LEAVING and is_all:
            return self._apply(world, at, machine.on_left())
        return world

    def _ack(self, world: World, entry: Message) -> World:
        before = world.acked[entry.offset]
        if before not in {None, entry.name}:
            raise BrokenPromise(
                f"forked: {before} and {entry.name} are acknowledged at {entry.offset}"
            )
        acked = list(world.acked)
        acked[entry.offset] = entry.name
        if acked.count(entry.name) > 1:
            raise BrokenPromise(f"duplicated: {entry.name} is acknowledged twice")
        return world._replace(acked=tuple(acked))

    def _remove(self, world: World, at: int) -> World:
        session = world.sessions[at]
        fences = session.fences if self.rules.keep_fences else frozenset()
        return with_session(world, at, removed=len(session.puts), fences=fences)

    # Sealing.

    def _committed_end(self, session: Session) -> int:
        """Return the end of the messages that are committed."""
        committed = session.puts[: session.committed()]
        ends = [put.entry.offset + 1 for put in committed if type(put.entry) is Message]
        return max([session.log.base, *ends])

    def _seal(self, world: World, at: int, end: int) -> World:
        session = world.sessions[at]
        log = session.log
        seal = (session.machine.epoch, log.base, log.tail[: end - log.base])
        world = world._replace(seals=world.seals + 1)
        return with_session(world, at, seal=seal)

    def _change_manifest(self, world: World, at: int) -> World:
        session = world.sessions[at]
        assert session.seal is not None
        epoch, base, messages = session.seal
        world = with_session(world, at, seal=None)
        if epoch != world.record.epoch and self.rules.manifest_compares_epoch:
            return world
        world = world._replace(manifest=world.manifest[:base] + messages)
        end = session.manifest_read
        if end is not None and base <= end:
            world = with_session(world, at, manifest_read=base + len(messages))
        log = session.log
        sealed = Log(base + len(messages), log.tail[len(messages) :], log.producers)
        return with_session(world, at, log=sealed)

    def _useless(self, session: Session) -> int:
        """Return the number of groups at the start that are not needed any more."""
        number = 0
        for put in session.puts[: session.committed()]:
            entry = put.entry
            if type(entry) is Message and entry.offset >= session.log.base:
                break
            number += 1
        return number if number < len(session.puts) else 0

    def _record_first(self, world: World, at: int, number: int) -> World:
        session = world.sessions[at]
        entries = [put.entry for put in session.puts[:number]]
        producers = frozenset(e.name for e in entries if type(e) is Message)
        for entry in entries:
            if type(entry) is Opened:
                producers |= entry.producers
        first = First(number, session.log.base, session.machine.epoch, producers)
        return with_session(world, at, first=first)

    # Promises.

    def _check_serving(self, world: World, at: int, session: Session) -> None:
        name, log = name_of(at), session.log
        record = world.record
        may_read = session.lease == 0 or not self.rules.stop_when_own_clock_says_so
        if self.bounds.reads and may_read:
            end = sum(each is not None for each in world.acked)
            if self._committed_end(session) < end:
                raise BrokenPromise(
                    f"offsets go back: a reader of {name} sees the end "
                    f"{self._committed_end(session)} after {end}"
                )
        if record.owner != name or record.epoch != session.machine.epoch:
            return
        sealed = len(world.manifest)
        if session.manifest_read is not None:
            sealed = session.manifest_read
        if log.base > sealed:
            raise BrokenPromise(f"lost: {name} finds no segment before {log.base}")
        messages = world.manifest[: log.base] + log.tail
        for offset, acked in enumerate(world.acked):
            if acked is None:
                continue
            if offset >= len(messages):
                raise BrokenPromise(
                    f"lost: {acked} at {offset}, {name} serves {messages}"
                )
            if messages[offset] != acked:
                raise BrokenPromise(
                    f"forked: {acked} at {offset}, {name} serves {messages}"
                )
        if len(set(messages)) < len(messages):
            raise BrokenPromise(f"duplicated: {name} serves {messages}")
        refused = world.refused & set(messages[: self._committed_end(session)])
        if refused:
            raise BrokenPromise(f"refused and served by {name}: {sorted(refused)}")


def _has_acted(session: Session) -> bool:
    machine = session.machine
    return machine.epoch > 0 or session.change is not None


def _text(change: ChangeShard) -> str:
    record = change.record
    return f"{record.state.value}, epoch {record.epoch}"
