"""
Giving up journals that cannot be read any more, so that their shards are served again.

A shard that was taken over waits for the journal of its source, however long that
takes.  If objects of the journal are lost or damaged, only people can decide to go on
without them.  They mark the records of the journals.  A session that takes a shard over
still reads a journal with the mark, and goes on without it only if it is damaged.
"""

from __future__ import annotations

import logging

import msgspec

from pydanube.model.clusters import ShardMove
from pydanube_broker.cluster.shard_moves import TOPICS_MAX, topics_by_shard
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import ABSENT, MetadataStore, Put, Unchanged

log = logging.getLogger(__name__)


async def give_up_journals(
    store: MetadataStore, broker_id: str, *, dry_run: bool
) -> list[ShardMove]:
    """
    Give up the journals of ended sessions of a broker for which shards wait.

    Returns: Those shards.  With *dry_run* nothing is changed.

    Raises:
        RevisionConflict: A journal is being frozen at this moment; try again.
    """
    journals = await store.scan(keys.SESSION_JOURNALS)
    sessions = {
        keys.SESSIONS.name_of(path) for path, _ in await store.scan(keys.SESSIONS)
    }
    ended = {
        session: stored
        for path, stored in journals
        if (session := keys.SESSION_JOURNALS.name_of(path)) not in sessions
        and stored.value.broker_id == broker_id
    }
    waiting = {
        int(keys.SHARDS.name_of(path)): stored.value.source
        for path, stored in await store.scan(keys.SHARDS)
        if stored.value.source in ended
    }
    topics = await topics_by_shard(store)
    if not dry_run:
        for session in sorted(set(filter(None, waiting.values()))):
            stored = ended[session]
            given_up = msgspec.structs.replace(
                stored.value, is_given_up=True, is_frozen=True
            )
            await store.transaction(
                [
                    Unchanged(keys.SESSION_JOURNALS.key(session), stored.revision),
                    Unchanged(keys.SESSIONS.key(session), ABSENT),
                ],
                [Put(keys.SESSION_JOURNALS.key(session), given_up)],
            )
            log.warning(
                "the journal of session %s of broker %s is given up by request",
                session,
                broker_id,
            )
    return [
        ShardMove(
            shard=shard,
            source=broker_id,
            target="",
            topics=tuple(sorted(topics.get(shard, ()))[:TOPICS_MAX]),
            topic_count=len(topics.get(shard, ())),
        )
        for shard in sorted(waiting)
    ]
