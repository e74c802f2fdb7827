"""Batches as Kafka clients read them, for several groups that read the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from pydanube.wire.batches import BatchFrame
from pydanube_kafka.pure.messages import encode_for_clients
from pydanube_kafka.schema_prefixes import SchemaPrefixes

BYTES_MAX = 32 * 1024 * 1024
INLINE_MESSAGES_MAX = 2000
"""Larger batches are encoded in a thread; so many take about 2 ms."""


class EncodedBatches:
    """
    The batches that were encoded last.

    Bounds: ``BYTES_MAX``, and one batch for each request that encodes.
    """

    def __init__(self, prefixes: SchemaPrefixes) -> None:
        self._prefixes = prefixes
        self._batches: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()
        self._byte_count = 0

    async def encode(self, topic_id: int, frame: BatchFrame) -> bytes:
        """
        Return *frame*, a batch of a topic, as Kafka clients read it.

        Raises:
            CorruptBatch: It is damaged.
            Unavailable: Its schema cannot be looked up.
        """
        key = topic_id, frame.base, frame.end
        known = self._batches.get(key)
        if known is not None:
            self._batches.move_to_end(key)
            return known
        header, prefix = frame.header, None
        if header.schema_id:
            prefix = await self._prefixes.find(header.schema_id, header.schema_version)
        if frame.count <= INLINE_MESSAGES_MAX:
            data = encode_for_clients(frame, prefix)
        else:
            loop = asyncio.get_running_loop()
            data = await loop.run_in_executor(None, encode_for_clients, frame, prefix)
        self._keep(key, data)
        return data

    def _keep(self, key: tuple[int, int, int], data: bytes) -> None:
        self._byte_count += len(data) - len(self._batches.get(key, b""))
        self._batches[key] = data
        while self._byte_count > BYTES_MAX:
            _, dropped = self._batches.popitem(last=False)
            self._byte_count -= len(dropped)
