"""Publishing messages with ids to a broker without servers."""

from __future__ import annotations

from dataclasses import replace

from pydanube.model.deduplication import DEDUPLICATION_ID
from pydanube.model.policy import Deduplication, TopicPolicy
from pydanube.wire.batches import encode
from support.fakes.batches import frame_of
from support.fakes.brokers import A_TOPIC, Outcome

AGE_S = 100.0
MESSAGES_MAX = 8
WINDOW = Deduplication(age_s=AGE_S, messages_max=MESSAGES_MAX)
DEDUPLICATING = TopicPolicy(deduplication=WINDOW)


async def opened(broker, name="p"):
    """Open a producer of ``A_TOPIC``, which deduplicates."""
    return await broker.producers.open(A_TOPIC, name, policy=DEDUPLICATING)


def identified_frame(session, ids, time, base_sequence=None):
    """Return a batch of one message for each of *ids*, or None for none."""
    return frame_of(
        [(each or "").encode() for each in ids],
        attributes=[None if each is None else {DEDUPLICATION_ID: each} for each in ids],
        producer=session.name,
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        base_sequence=(
            session.next_sequence if base_sequence is None else base_sequence
        ),
        time=time,
    )


def publish(
    topic, session, ids, time, base_sequence=None, *, uses_ids=False
) -> Outcome:
    """Publish a message for each of *ids*."""
    outcome = Outcome()
    frame = identified_frame(session, ids, time, base_sequence)
    if uses_ids:
        frame = encode(frame.arrow(), replace(frame.header, has_ids=True))
    topic.publish(session, frame, outcome)
    return outcome


async def offsets(outcome, count) -> list[int]:
    """Return the offset of each message of a published batch."""
    found = await outcome.offset()
    return list(range(found, found + count) if isinstance(found, int) else found)


async def stored_ids(topic) -> list[str]:
    """Return the ids of the messages of *topic*, which are their payloads."""
    found: list[str] = []
    while len(found) < topic.end_offset:
        for frame in await topic.log.read(len(found), bytes_max=1):
            found += [each.decode() for each in frame.arrow()["payload"].to_pylist()]
    return found
