"""Changes of what the next owner of a topic reads from the metadata store."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.errors import NotOwner, RevisionConflict
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import HasValue, MetadataStore, Operation
from pydanube_broker.storage.segments.topic_log import TopicLog


async def change_owned(
    store: MetadataStore, topic_log: TopicLog, operations: Sequence[Operation]
) -> None:
    """
    Change what the next owner of a topic reads, unless it may have read it already.

    A change that is on its way while the shard of the topic moves is in force at the
    next owner, or it is refused.

    Raises:
        NotOwner: Another broker has claimed the topic; nothing was changed.
    """
    key = keys.writer_epoch(topic_log.topic_id, topic_log.shard)
    try:
        await store.transaction([HasValue(key, topic_log.epoch)], operations)
    except RevisionConflict as error:
        raise NotOwner(
            f"another broker serves {topic_log.name} now; nothing was changed"
        ) from error
