"""
The controller: one broker of the cluster, which decides who should own which shard.

Every broker runs this.  The one that holds the key ``/controller/session``, with the
lease of its session, is the controller; each of its changes compares the revision of
that key.  The others wait until the key is gone.  Two brokers may believe for a moment
that they are the controller, and then the changes of one of them are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import MetadataUnavailable, RevisionConflict, SessionLost
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.cluster.pure.directions import (
    ClusterView,
    Director,
    DirectShard,
    drained_record,
)
from pydanube_broker.cluster.pure.ownership import ShardView
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import ShardRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    OPERATIONS_MAX,
    Comparison,
    Delete,
    MetadataStore,
    Operation,
    Put,
    Revision,
    Stored,
    Unchanged,
    retry_on_conflict,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

_NAME = keys.CONTROLLERS.name_of(keys.CONTROLLER.path)
_REBALANCE = keys.CONTROLLERS.name_of(keys.REBALANCE.path)

PACE_S = 0.05
"""The least time between two steps of the controller."""
PACE_S_MAX = 0.2
"""The time between steps after several that had nothing to do, as in a takeover."""
RETRY_S = 1.0
"""How long the controller waits after a change that was refused or failed."""
CHANGES_MAX = OPERATIONS_MAX // 2 - 1
"""How many shards are changed in one transaction, which also compares each of them."""


@dataclass(slots=True)
class ControllerCounts:
    """The number of changes that this broker has made as the controller."""

    elections: int = 0
    """How often it became the controller."""
    assignments: int = 0
    """Shards without an owner that got a target."""
    moves: int = 0
    """Shards whose owners were asked to leave."""
    drained: int = 0
    """Brokers that became drained."""
    refusals: int = 0
    """Transactions that were refused, because something had changed meanwhile."""


class Controller:
    """A broker's part in directing the cluster; ``run`` does the work."""

    def __init__(
        self,
        session: ClusterSession,
        store: MetadataStore,
        director: Director,
        *,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.counts = ControllerCounts()
        self._session = session
        self._store = store
        self._director = director
        self._pace_s = PACE_S
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._election = Mirror(keys.CONTROLLERS)
        self._shards = Mirror(keys.SHARDS)
        self._views: dict[str, ShardView] = {}
        self._modes = Mirror(keys.BROKER_MODES)
        self._loads = Mirror(keys.LOADS)
        self._leaving = Mirror(keys.LEAVING)
        self._wake = asyncio.Event()
        self._elected: Revision | None = None
        """The revision of the key, if this session has put it."""
        # The revisions of the last own changes.
        self._shards_at = self._modes_at = ABSENT

    @property
    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._shards, self._modes, self._loads, self._leaving

    @property
    def is_controller(self) -> bool:
        """Whether this session was the controller when it looked last."""
        return self._elected is not None

    async def run(self) -> None:
        """
        Take part in elections, and direct the cluster after winning one.

        Returns when the session is over.
        """
        unwatch = self._session.watch_members(self._wake.set)
        try:
            async with task_scope() as tasks:
                for mirror in (self._election, *self._mirrors):
                    following = mirror.follow(self._store, self._wake.set)
                    tasks.run(following, "follow the metadata of the cluster")
                tasks.run(self._take_part(), "direct the cluster")
                await self._session.lease.lost.wait()
        finally:
            unwatch()
            self._elected = None

    async def _take_part(self) -> None:
        while True:
            self._wake.clear()
            wait_s = await self._step()
            # Moves change records in quick succession, and each step reads all shards.
            await asyncio.sleep(self._pace_s)
            await self._wait(wait_s)

    async def _wait(self, wait_s: float | None) -> None:
        """Wait for a change, but at most *wait_s*."""
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step(self) -> float | None:
        """Do what is due; return after which time to do more without a change."""
        try:
            if not await self._is_elected():
                return None
            return await self._direct()
        except (RevisionConflict, SessionLost):
            # The next change, or the end of the session, tells what has happened.
            self.counts.refusals += 1
        except MetadataUnavailable as error:
            log.warning("the controller waits: %s", error)
        return RETRY_S

    async def _is_elected(self) -> bool:
        """Return whether this session is the controller; try to become it."""
        election = self._election
        if election.revision is None:
            return False
        holder = election.values.get(_NAME)
        if holder is not None:
            # The outcome of the own put may have been unknown.
            is_own = holder.value == self._session.session_id
            self._on_elected(holder.revision if is_own else None)
        elif self._elected is None or election.has(self._elected):
            self._on_elected(None)
            self._on_elected(await self._elect())
        return self._elected is not None

    async def _elect(self) -> Revision:
        session = self._session
        return await self._store.transaction(
            [
                Unchanged(keys.CONTROLLER, ABSENT),
                Unchanged(session.key, session.revision),
            ],
            [Put(keys.CONTROLLER, session.session_id, session.lease)],
        )

    def _on_elected(self, revision: Revision | None) -> None:
        """Take the revision of the own election; None: this is not the controller."""
        before, self._elected = self._elected, revision
        if revision is None and before is not None:
            log.warning("this broker is not the controller any more")
        if revision is not None and revision != before:
            self.counts.elections += 1
            log.info("this broker is the controller now, at revision %d", revision)

    async def _direct(self) -> float | None:
        """Change what should be changed; return when to look again without a change."""
        is_known = all(mirror.revision is not None for mirror in self._mirrors)
        if not is_known or self._session.members.revision is None:
            return None
        if not (self._shards.has(self._shards_at) and self._modes.has(self._modes_at)):
            # Its own changes come first.
            return None
        request = self._election.values.get(_REBALANCE)
        if request is not None:
            self._director.begin_balancing()
        now = self._clock()
        directions = self._director.on_view(self._view(), now)
        shards = directions.shards
        self._pace_s = PACE_S if shards else min(2 * self._pace_s, PACE_S_MAX)
        for at in range(0, len(shards), CHANGES_MAX):
            await self._direct_shards(shards[at : at + CHANGES_MAX])
        for broker in directions.drained:
            await self._note_drained(broker)
        if request is not None:
            await self._note_rebalance(request)
        rest_end = self._director.next_rest_end(now)
        return None if rest_end is None else rest_end - now

    def _view(self) -> ClusterView:
        return ClusterView(
            sessions=_values_of(self._session.members),
            shards={
                int(name): self._view_of(name, stored)
                for name, stored in self._shards.values.items()
                # It cannot be changed: its revision is not known.
                if name not in self._shards.damaged
            },
            modes=_values_of(self._modes),
            loads=_values_of(self._loads),
            leaving=self._leaving.values,
        )

    def _view_of(self, name: str, stored: Stored[ShardRecord]) -> ShardView:
        """Return a shard as before, if it has not changed: most have not."""
        view = self._views.get(name)
        if view is None or view.revision != stored.revision:
            view = self._views[name] = ShardView(stored.value, stored.revision)
        return view

    async def _direct_shards(self, shards: Sequence[DirectShard]) -> None:
        assert self._elected is not None
        comparisons: list[Comparison] = [Unchanged(keys.CONTROLLER, self._elected)]
        operations: list[Operation] = []
        for each in shards:
            key = keys.SHARDS.key(each.shard)
            comparisons.append(Unchanged(key, Revision(each.change.revision)))
            operations.append(Put(key, each.change.record))
        self._shards_at = await self._store.transaction(comparisons, operations)
        targets = Counter(each.target for each in shards)
        log.info(
            "the controller gives %s",
            ", ".join(f"{n} shards to session {each}" for each, n in targets.items()),
        )
        for each in shards:
            if each.source is None:
                self.counts.assignments += 1
            else:
                self.counts.moves += 1
            log.debug(
                "shard %d goes from session %s to session %s",
                each.shard,
                each.source or "(none)",
                each.target,
            )

    async def _note_rebalance(self, request: Stored[str]) -> None:
        """Delete the request to balance the cluster, unless there is a newer one."""
        assert self._elected is not None
        await self._store.transaction(
            [
                Unchanged(keys.CONTROLLER, self._elected),
                Unchanged(keys.REBALANCE, request.revision),
            ],
            [Delete(keys.REBALANCE)],
        )

    async def _note_drained(self, broker: str) -> None:
        assert self._elected is not None
        before = self._modes.values[broker]
        key = keys.BROKER_MODES.key(broker)
        self._modes_at = await self._store.transaction(
            [
                Unchanged(keys.CONTROLLER, self._elected),
                Unchanged(key, before.revision),
            ],
            [Put(key, drained_record(before.value, self._wall_clock_us()))],
        )
        self.counts.drained += 1
        log.info("broker %s is drained: it owns no shards", broker)


def _values_of(mirror: Mirror[T]) -> dict[str, T]:
    return {name: stored.value for name, stored in mirror.values.items()}


async def create_shards(store: MetadataStore, count: int) -> None:
    """
    Create the shards 0 … *count* of a new cluster; those that exist stay as they are.

    Raises:
        MetadataUnavailable: Some may be missing; call it again.
    """

    async def create_missing() -> None:
        paths = await store.paths(keys.SHARDS)
        present = {int(keys.SHARDS.name_of(path)) for path in paths}
        missing = [shard for shard in range(count) if shard not in present]
        for at in range(0, len(missing), CHANGES_MAX):
            part = [keys.SHARDS.key(shard) for shard in missing[at : at + CHANGES_MAX]]
            await store.transaction(
                [Unchanged(key, ABSENT) for key in part],
                [Put(key, ShardRecord()) for key in part],
            )

    # Another broker may be creating them at the same time.
    await retry_on_conflict(create_missing)
