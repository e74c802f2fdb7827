"""A broker's part in a cluster: taking over shards, and directing the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pydanube.aio.tasks import task_scope
from pydanube.broker.broker import Broker
from pydanube.broker.manifest import MetadataManifest
from pydanube.cluster.controller import Controller
from pydanube.cluster.directions import Director
from pydanube.cluster.journal_host import JournalHost
from pydanube.cluster.session import ClusterSession
from pydanube.cluster.takeover import Takeovers
from pydanube.metadata.store import MetadataStore
from pydanube.objects.store import Objects
from pydanube.storage.object_journal import ObjectJournal


@asynccontextmanager
async def serving_shards(
    session: ClusterSession,
    store: MetadataStore,
    broker: Broker,
    *,
    journal_id: bytes,
    journal_objects: Objects,
    wall_clock_us: Callable[[], int],
) -> AsyncIterator[Takeovers]:
    """
    Take over, serve and leave shards during the body, and take part in elections.

    *journal_objects* is the store of the journals of all sessions.  At the end of the
    body, or of the session, no shard is served any more.
    """
    journal, shards, serving = (
        broker.storage.journal,
        broker.shards,
        broker.shard_serving,
    )
    assert isinstance(journal, ObjectJournal)
    assert shards is not None
    assert serving is not None
    host = JournalHost(
        session.session_id,
        store,
        serving,
        journal=journal,
        journal_id=journal_id,
        objects=journal_objects,
        manifest=MetadataManifest(store),
    )
    takeovers = Takeovers(session, store, host)
    shards.find_owner = takeovers.find_owner
    controller = Controller(
        session,
        store,
        Director(),
        clock=asyncio.get_running_loop().time,
        wall_clock_us=wall_clock_us,
    )
    async with task_scope() as tasks:
        tasks.run(takeovers.run(), "take over shards")
        tasks.run(controller.run(), "direct the cluster")
        yield takeovers
