"""
A session's part in all shards: taking them over, serving them, and leaving them.

``ownership`` decides what to do with one shard.  This module carries it out: the
transactions itself, and what concerns messages through a ``ShardHost``.  Each shard
that concerns the session has a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import Protocol

import msgspec

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import (
    BrokerError,
    Closed,
    Corrupt,
    JournalFailed,
    RevisionConflict,
    SessionLost,
)
from pydanube.model.retry import RetryPolicy
from pydanube_broker.cluster.pacing import HANDOVERS_MAX, TakeoverPace, handover_cost
from pydanube_broker.cluster.pure.moves import NO_LOAD
from pydanube_broker.cluster.pure.ownership import (
    Adopt,
    AppendLeft,
    ChangeShard,
    Effect,
    FenceJournal,
    Look,
    Ownership,
    PrepareMove,
    ReadShard,
    RefuseMessages,
    Serve,
    ShardView,
    Stage,
    Step,
    Stop,
)
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.shard_tally import ShardTally, steps_text
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import ShardRecord, ShardState
from pydanube_broker.metadata.store import (
    ABSENT,
    Comparison,
    MetadataStore,
    Operation,
    Put,
    Revision,
    Unchanged,
)

log = logging.getLogger(__name__)

RETRIES = RetryPolicy(first_s=0.05, max_s=5.0)
_OPENING = {Stage.FENCING, Stage.READING, Stage.ADOPTING, Stage.ADOPTED}
_LEAVING = {Stage.LEAVING, Stage.LEFT}


EMPTY_HANDOVERS_MAX = 8
"""
The limit for shards without topics, for which no client waits.

They move only while none with topics does or could, because they would slow it down.
"""
_STEPS: dict[type, str] = {
    PrepareMove: "prepare",
    FenceJournal: "fence",
    ReadShard: "read",
    Adopt: "adopt",
    Serve: "serve",
    AppendLeft: "last group",
}
_CHANGES = {
    ShardState.OPENING: "claim",
    ShardState.OPEN: "open",
    ShardState.RELEASED: "release",
}


class ShardHost(Protocol):
    """
    The part of a takeover that concerns messages, journals and object stores.

    Calls about one shard come one after the other, those about several shards at the
    same time.  A call that raises an error is repeated.  JournalFailed and Closed say
    that the session's own journal accepts nothing more, and end the session.
    """

    async def prepare(self, source: str) -> None:
        """Read what the journal of the session *source* has now, which goes on."""

    async def fence(self, source: str) -> None:
        """Fence the journal of the session *source*; it may be fenced already."""

    async def read(self, shard: int, source: str | None, epoch: int) -> None:
        """
        Read the manifests, and the entries of the shard with *epoch*.

        The shard has left its *source* if that was not fenced; it is new if there is
        none.
        """

    async def adopt(self, shard: int, epoch: int) -> None:
        """Append what was read, as *epoch*; return when it is committed."""

    async def serve(self, shard: int, epoch: int) -> None:
        """Accept messages and deliver, unless the session is over."""

    def refuse_messages(self, shard: int) -> None:
        """Accept no more messages, but go on with those that were appended."""

    async def append_left(self, shard: int, epoch: int) -> None:
        """Append SHARD_LEFT; return when it is committed."""

    def keep_sources(self, sources: Collection[str]) -> None:
        """Forget what was read of other sessions than *sources*."""

    def note_source(self, shard: int, epoch: int) -> None:
        """Take that a record names a source of the shard with *epoch*."""

    def stop(self, shard: int) -> None:
        """
        Deliver nothing more, and answer no readers.

        At the end of the session, serve() may have been cancelled before.
        """


class Takeovers:
    """This session's shards; ``run`` does the work."""

    def __init__(
        self,
        session: ClusterSession,
        store: MetadataStore,
        host: ShardHost,
        owners: ShardOwners,
        *,
        retries: RetryPolicy = RETRIES,
    ) -> None:
        """The takeovers keep *owners* up to date."""
        self.owners = owners
        self.machines: dict[int, Ownership] = {}
        """The shards that concern this session."""
        self._session = session
        self._store = store
        self._host = host
        self._retries = retries
        self._shards = owners.records
        self._wakes: dict[int, asyncio.Event] = {}
        self._lost: set[str] = set()
        # The revision of each shard's record that its task was told of.
        self._known: dict[int, Revision] = {}
        # The revisions of the records of frozen journals, which do not change any more.
        self._frozen: dict[str, Revision] = {}
        self._freezing: dict[str, asyncio.Lock] = {}
        # The shards whose owners this session has asked to leave.
        self._handovers: set[int] = set()
        # The shards that had no topics when their moves were prepared.
        self._empty: set[int] = set()
        # The costs of the others; see ``handover_cost``.
        self._costs: dict[int, float] = {}
        # The shards that are taken over now, and those before them in the queue.
        self._turns: set[int] = set()
        self._entry = asyncio.Lock()
        self._turn_ended = asyncio.Event()
        self._pace = TakeoverPace()
        self._clock = asyncio.get_running_loop().time
        self._opening = ShardTally(self._clock, self._on_taken_over)
        self._leaving = ShardTally(self._clock, _log_left)

    async def run(self) -> None:
        """
        Take over, serve and leave shards as their records say.

        Returns when the session is over; then no shard is served.
        """
        async with task_scope() as tasks:
            unwatch = self._session.watch_members(self._on_members)
            try:
                following = self._shards.follow(
                    self._store, partial(self._on_shards, tasks)
                )
                tasks.run(following, "follow the shards")
                await self._session.lease.lost.wait()
            finally:
                unwatch()
                tasks.cancel()
                for shard, machine in self.machines.items():
                    if machine.on_session_over()[1]:
                        self._host.stop(shard)
                self.machines.clear()

    def _on_shards(self, tasks: TaskScope) -> None:
        sources: set[str] = set()
        own = self._session.session_id
        for name, stored in self._shards.values.items():
            shard, record = int(name), stored.value
            if own == record.target or (
                own == record.owner and record.state is ShardState.OPENING
            ):
                sources.update(filter(None, (record.owner, record.source)))
            if self._known.get(shard) == stored.revision:
                continue
            self._known[shard] = stored.revision
            self._note_direction(shard, record)
            self._host.note_source(shard, record.source_epoch)
            if shard in self._wakes:
                self._wakes[shard].set()
            elif own in {record.owner, record.target}:
                self._wakes[shard] = asyncio.Event()
                tasks.run(self._drive(shard), f"own shard {shard}")
        self._host.keep_sources(sources)
        self.owners.note_change()

    def _note_direction(self, shard: int, record: ShardRecord) -> None:
        """Note whether a shard that is served here is going to leave."""
        machine = self.machines.get(shard)
        if machine is None or machine.stage is not Stage.SERVING:
            return
        if record.target in {None, self._session.session_id}:
            self._leaving.end(shard, is_changed=False)
        else:
            self._leaving.begin(shard)

    def _on_members(self) -> None:
        """Wake the shards that may wait for the end of a session."""
        for shard, machine in self.machines.items():
            if machine.stage is Stage.IDLE and shard in self._wakes:
                self._wakes[shard].set()
        self.owners.note_change()

    async def _drive(self, shard: int) -> None:
        """Do what the record of a shard says, until it concerns other sessions."""
        wake = self._wakes[shard]
        machine: Ownership = Ownership(self._session.session_id)
        effects: tuple[Effect, ...] = (Look(),)
        try:
            while True:
                self.machines[shard] = machine
                self._note_stage(shard, machine.stage)
                following = machine, tuple[Effect, ...]()
                for effect in effects:
                    following = await self._carry_out(shard, machine, effect)
                machine, effects = following
                if not effects:
                    self._end_turn(shard)
                    if machine.stage is Stage.IDLE and not self._is_target(shard):
                        self._opening.end(shard, is_changed=False)
                        self._end_handover(shard)
                    if machine.stage is Stage.IDLE and not self._concerns(shard):
                        return
                    await wake.wait()
                    wake.clear()
                    effects = (Look(),)
        except (JournalFailed, Closed, SessionLost) as error:
            log.error("this session of the broker is over: %s", error)  # noqa: TRY400
            self._session.lease.end()
        finally:
            # Without the session, run() stops what is served.
            if not self._session.is_over:
                self.machines.pop(shard, None)
            self._note_stage(shard, Stage.OVER)
            del self._wakes[shard]

    def _note_stage(self, shard: int, stage: Stage) -> None:
        """Count the shard, and log when no shard is left in the same change."""
        if stage in _OPENING:
            self._opening.begin(shard)
        elif stage not in {Stage.IDLE, Stage.SERVING}:
            # IDLE is also a move that is prepared, and SERVING comes before Serve.
            self._opening.end(shard, is_changed=False)
        if stage in _LEAVING:
            self._leaving.begin(shard)
        elif stage is not Stage.SERVING:
            self._leaving.end(shard, is_changed=stage is Stage.IDLE)
        if stage is Stage.OVER:
            self._end_turn(shard)
            self._end_handover(shard)

    async def _begin_turn(self, shard: int) -> None:
        """Wait until this session should take over one more shard."""
        if shard in self._turns:
            return
        async with self._entry:
            began_at = self._clock()
            await asyncio.sleep(0)
            self._pace.on_round(self._clock() - began_at)
            while len(self._turns) >= self._pace.limit:
                self._turn_ended.clear()
                await self._turn_ended.wait()
            self._turns.add(shard)

    def _end_turn(self, shard: int) -> None:
        self._turns.discard(shard)
        self._turn_ended.set()

    def _end_handover(self, shard: int) -> None:
        """Let others leave their owners, if none has to wait for this shard now."""
        self._handovers.discard(shard)
        self._costs.pop(shard, None)
        for each in self._prepared():
            if each in self._wakes and self._has_turn(each):
                # _drive() ends the turn if the shard is not to move any more.
                self._handovers.add(each)
                self._wakes[each].set()

    def _on_taken_over(
        self, count: int, taken_s: float, steps: Mapping[str, float]
    ) -> None:
        self.owners.counts.takeovers += 1
        self.owners.counts.takeover_s += taken_s
        log.info(
            "took over %d shards in %.3f s (at most %s for one); this broker serves "
            "%d now, %d wait",
            count,
            taken_s,
            steps_text(steps),
            sum(each.stage is Stage.SERVING for each in self.machines.values()),
            len(self.owners.waits),
        )

    def _concerns(self, shard: int) -> bool:
        record = self._shards.values[str(shard)].value
        return self._session.session_id in {record.owner, record.target}

    def _is_target(self, shard: int) -> bool:
        record = self._shards.values[str(shard)].value
        return record.target == self._session.session_id

    async def _carry_out(self, shard: int, machine: Ownership, effect: Effect) -> Step:
        """Carry out *effect*, repeatedly if it fails, and return what follows."""
        failures = 0
        while True:
            try:
                began_at = self._clock()
                following = await self._try(shard, machine, effect)
                self._note_step(shard, effect, began_at)
            except (JournalFailed, Closed, SessionLost):
                raise
            except Exception as error:
                # A failure of one shard must not end the broker.
                failures += 1
                self.owners.counts.failures += 1
                is_expected = isinstance(error, BrokerError)
                problem = str(error) if is_expected else f"unexpected error: {error!r}"
                if problem not in self.owners.waits.values():
                    log.warning(
                        "shard %d waits: %s",
                        shard,
                        problem,
                        exc_info=None if is_expected else error,
                    )
                self.owners.waits[shard] = problem
                # The others of the takeover do not wait for it.
                self._opening.end(shard, is_changed=False)
                self._end_turn(shard)
                await asyncio.sleep(self._retries.delay_s(failures))
            else:
                self.owners.waits.pop(shard, None)
                return following

    def _note_step(self, shard: int, effect: Effect, began_at: float) -> None:
        if isinstance(effect, ChangeShard):
            step = _CHANGES.get(effect.record.state)
        else:
            step = _STEPS.get(type(effect))
        if step is not None:
            taken_s = self._clock() - began_at
            self._opening.note(shard, step, taken_s)
            self._leaving.note(shard, step, taken_s)
        if isinstance(effect, Serve):
            self._end_turn(shard)
            self._opening.end(shard, is_changed=True)
            self._end_handover(shard)

    async def _try(self, shard: int, machine: Ownership, effect: Effect) -> Step:
        host, following = self._host, (machine, tuple[Effect, ...]())
        match effect:
            case Look():
                following = machine.on_view(await self._look(shard))
            case ChangeShard():
                if effect.raises_epoch:
                    self._opening.begin(shard)
                    await self._begin_turn(shard)
                elif effect.record.state is ShardState.CLOSING:
                    self._handovers.add(shard)
                await self._change(shard, effect)
                following = machine, (Look(),)
            case PrepareMove(source, epoch):
                self._opening.begin(shard)
                await self._prepare(shard, source)
                following = machine.on_prepared(epoch)
            case FenceJournal(source):
                await host.fence(source)
                following = machine.on_fenced()
            case ReadShard(source, epoch):
                await host.read(shard, source, epoch)
                following = machine.on_read()
            case Adopt(epoch):
                await host.adopt(shard, epoch)
                following = machine.on_adopted()
            case Serve(epoch):
                await host.serve(shard, epoch)
                self.owners.counts.served += 1
                log.debug("shard %d is served, with epoch %d", shard, epoch)
            case RefuseMessages():
                host.refuse_messages(shard)
            case AppendLeft():
                await host.append_left(shard, machine.epoch)
                following = machine.on_left()
            case Stop():
                host.stop(shard)
                log.debug("shard %d is not served any more", shard)
        return following

    async def _prepare(self, shard: int, source: str) -> None:
        """Prepare the move of a shard, if it has topics."""
        topics = await self._store.scan(keys.SHARD_TOPICS.within(shard))
        if not topics:
            self._empty.add(shard)
            return
        self._empty.discard(shard)
        stored = await self._store.get(keys.LOADS.key(source))
        loads = {} if stored is None else stored.value.shards
        load = loads.get(shard, NO_LOAD)
        self._costs[shard] = handover_cost(len(topics), load)
        await self._host.prepare(source)

    async def _look(self, shard: int) -> ShardView:
        stored = await self._store.get(keys.SHARDS.key(shard))
        assert stored is not None, "shards are never deleted"
        record, own = stored.value, self._session.session_id
        is_gone = False
        if record.owner not in {None, own}:
            key = keys.SESSIONS.key(record.owner)
            is_gone = await self._store.get(key) is None
        return ShardView(
            record,
            stored.revision,
            is_owner_gone=is_gone,
            is_wanted=record.target == own,
            is_turn=shard in self._handovers or self._has_turn(shard),
        )

    def _has_turn(self, shard: int) -> bool:
        """Return whether an owner may be asked now to leave *shard*."""
        if shard not in self._empty:
            taken = sum(self._cost_of(each) for each in self._handovers)
            has_room = taken + self._cost_of(shard) <= self._pace.handovers
            return has_room or not self._handovers
        return (
            len(self._handovers) < EMPTY_HANDOVERS_MAX
            and self._handovers <= self._empty
            and self._empty.issuperset(self._prepared())
        )

    def _cost_of(self, shard: int) -> float:
        return self._costs.get(shard, 1 / HANDOVERS_MAX)

    def _prepared(self) -> list[int]:
        """Return the shards whose moves are prepared, and which have not left yet."""
        return [
            shard
            for shard, machine in self.machines.items()
            if machine.prepared_epoch and machine.stage is Stage.IDLE
        ]

    async def _change(self, shard: int, change: ChangeShard) -> None:
        """
        Make a transaction; its outcome is seen with the next look.

        Raises:
            Corrupt: The source of the shard has no journal.
        """
        session, record = self._session, change.record
        key = keys.SHARDS.key(shard)
        comparisons: list[Comparison] = [Unchanged(key, Revision(change.revision))]
        operations: list[Operation] = [Put(key, record)]
        if change.gone is not None:
            comparisons.append(Unchanged(keys.SESSIONS.key(change.gone), ABSENT))
        if change.present is not None:
            assert change.present == session.session_id
            comparisons.append(Unchanged(session.key, session.revision))
        if change.raises_epoch:
            operations.append(Put(keys.SHARD_EPOCHS.key(shard), record.epoch))
        try:
            await self._transact(change, comparisons, operations)
        except RevisionConflict as error:
            self.owners.counts.refusals += 1
            # The journal may have been given up.
            self._frozen.pop(change.freeze or "", None)
            log.debug("shard %d has changed meanwhile: %s", shard, error)
            # If the own key is gone, nothing else says so, and the next one fails, too.
            await asyncio.sleep(self._retries.first_s)
            return
        self.owners.counts.claims += change.raises_epoch
        self.owners.counts.released += record.owner is None
        if change.gone is not None and change.gone not in self._lost:
            self._lost.add(change.gone)
            self.owners.counts.lost_sessions += 1
            log.warning(
                "session %s has ended while it owned shards; taking them over",
                change.gone,
            )
        log.debug(
            "shard %d: %s, epoch %d, owner %s",
            shard,
            record.state.value,
            record.epoch,
            record.owner or "(none)",
        )

    async def _transact(
        self,
        change: ChangeShard,
        comparisons: list[Comparison],
        operations: list[Operation],
    ) -> None:
        source = change.freeze
        if source is not None and source not in self._frozen:
            # The first claim freezes the journal; those of other shards would conflict.
            async with self._freezing.setdefault(source, asyncio.Lock()):
                if source not in self._frozen:
                    await self._freeze(source, comparisons, operations)
                    revision = await self._store.transaction(comparisons, operations)
                    self._frozen.setdefault(source, revision)
                    return
        if source is not None:
            key = keys.SESSION_JOURNALS.key(source)
            comparisons.append(Unchanged(key, self._frozen[source]))
        await self._store.transaction(comparisons, operations)

    async def _freeze(
        self,
        source: str,
        comparisons: list[Comparison],
        operations: list[Operation],
    ) -> None:
        """Add what freezes the journal of *source*, unless it is frozen."""
        key = keys.SESSION_JOURNALS.key(source)
        stored = await self._store.get(key)
        if stored is None:
            raise Corrupt(
                f"the metadata store has no record of the journal of session {source}"
            )
        comparisons.append(Unchanged(key, stored.revision))
        if stored.value.is_frozen:
            self._frozen[source] = stored.revision
        else:
            frozen = msgspec.structs.replace(stored.value, is_frozen=True)
            operations.append(Put(key, frozen))


def _log_left(count: int, taken_s: float, steps: Mapping[str, float]) -> None:
    log.info(
        "%d shards have left this broker, in %.3f s (at most %s for one)",
        count,
        taken_s,
        steps_text(steps),
    )
