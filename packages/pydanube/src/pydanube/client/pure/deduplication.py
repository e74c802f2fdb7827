"""The ids of messages, as a producer sends them with batches.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.client.pure.outgoing import OutgoingBatch
from pydanube.model.errors import InvalidRequest


def with_ids(
    batches: Sequence[OutgoingBatch], ids: Sequence[str]
) -> list[OutgoingBatch]:
    """
    Return *batches* with the id of each message in its attributes.

    Raises:
        InvalidRequest: There are more or fewer ids than messages.
    """
    count = sum(batch.count for batch in batches)
    if len(ids) != count:
        raise InvalidRequest(f"{len(ids)} ids for {count} messages")
    found: list[OutgoingBatch] = []
    base = 0
    for batch in batches:
        found.append(batch.with_ids(ids[base : base + batch.count]))
        base += batch.count
    return found
