"""
Acknowledgements of decided transactions, in the cursors that a takeover adopts.

A commit is decided in a transaction that compares the epochs of the shards whose
messages it acknowledges.  So a session that has claimed a shard finds all decisions
about it, and applies them before it delivers anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydanube.model.ids import TopicId
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.storage.journal.state import TopicState


async def with_decided_acks(
    store: MetadataStore, topics: Mapping[TopicId, TopicState]
) -> dict[TopicId, TopicState]:
    """Return *topics* with the cursors after all decided transactions."""
    found = dict(topics)
    for _, query in await store.scan_valid(keys.QUERIES):
        decision = query.value.decision
        if decision is None:
            continue
        for each in decision.acks:
            topic = found.get(TopicId(each.topic_id))
            if each.is_done or topic is None or each.subscription not in topic.cursors:
                continue
            key = keys.SUBSCRIPTIONS.key(each.topic_id, each.subscription)
            stored = await store.get(key)
            if stored is None or stored.value.created_at != each.created_at:
                continue
            cursor = topic.cursors[each.subscription]
            done = cursor.done.copy()
            for base, end in each.ranges:
                done.add(base, end)
            offset = done.take_through(cursor.offset)
            after = replace(cursor, offset=offset, done=done)
            cursors = topic.cursors | {each.subscription: after}
            found[TopicId(each.topic_id)] = replace(topic, cursors=cursors)
    return found
