"""A broker that is about to stop: its shards move to others before its session ends."""

from __future__ import annotations

import asyncio
import logging

from pydanube.model.errors import BrokerError
from pydanube_broker.cluster.pure.directions import candidates
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.cluster.shard_moves import read_view
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore, Put, Unchanged

log = logging.getLogger(__name__)

LEAVE_S = 10.0
"""How long a broker that stops waits until its shards have moved.

After that they are taken over, as those of a broker that has died.
"""
LOOK_S = 0.05


async def leave(
    session: ClusterSession, store: MetadataStore, timeout_s: float = LEAVE_S
) -> None:
    """
    Let the controller move all shards of *session* away, and wait until they have left.

    Returns earlier if no other broker can take them.  The session goes on, and gets no
    shards any more.
    """
    try:
        if not await _can_leave(session, store):
            return
        await store.transaction(
            [Unchanged(session.key, session.revision)],
            [
                Put(
                    keys.LEAVING.key(session.session_id),
                    session.session_id,
                    session.lease,
                )
            ],
        )
        async with asyncio.timeout(timeout_s):
            while await _can_leave(session, store):  # noqa: ASYNC110  # In etcd.
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        log.warning("not all shards have moved to other brokers in %g s", timeout_s)
    except BrokerError as error:
        log.warning("the shards of this broker cannot be moved: %s", error)


async def _can_leave(session: ClusterSession, store: MetadataStore) -> bool:
    """Return whether the session has shards, and another one could take them."""
    view = await read_view(store)
    owns = any(each.record.owner == session.session_id for each in view.shards.values())
    return owns and any(
        not each.is_draining and each.session != session.session_id
        for each in candidates(view)
    )
