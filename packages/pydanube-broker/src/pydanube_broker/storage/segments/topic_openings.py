"""The journal entries with which topics begin, and topics that are being deleted."""

from __future__ import annotations

from pydanube.model.ids import Epoch, Offset
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.files.journal_format import TopicAdopted, TopicOpened
from pydanube_broker.storage.journal.state import TopicState
from pydanube_broker.storage.segments.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class Leftover:
    """The contents of a topic that another broker of the cluster began to delete."""

    name: str
    epoch: Epoch
    """The epoch with which this broker owns the shard."""
    shard: int


def opening_of(
    topic_log: TopicLog,
    state: TopicState | None,
    end_offset: Offset,
    sealed_offset: Offset,
) -> TopicOpened | TopicAdopted | None:
    """Return the entry with which a log begins; None if it was adopted before."""
    if topic_log.shard is None:
        return TopicOpened(
            topic_id=topic_log.topic_id,
            name=topic_log.name,
            epoch=topic_log.epoch,
            end_offset=end_offset,
            sealed_offset=sealed_offset,
        )
    begun = (topic_log.shard, topic_log.epoch)
    if state is not None and (state.shard, state.epoch) == begun:
        return None
    return TopicAdopted(
        topic_id=topic_log.topic_id,
        shard=topic_log.shard,
        name=topic_log.name,
        epoch=topic_log.epoch,
        end_offset=end_offset,
        sealed_offset=sealed_offset,
    )
