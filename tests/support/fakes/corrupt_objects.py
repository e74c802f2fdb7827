"""Objects of which some are damaged, missing or unreadable, and can be repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.names import TopicName
from pydanube.objects.memory import MemoryObjects
from support.fakes.storages import seal

if TYPE_CHECKING:
    from pydanube_broker.testing import MemoryBroker


class CorruptibleObjects(MemoryObjects):
    """Objects in memory; each may be made unreadable and be repaired."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, OSError] = {}
        """The errors that opening an object raises."""
        self.opened: list[str] = []
        """The objects that were opened, in order."""
        self._whole: dict[str, pa.Buffer] = {}

    def open(self, name: str) -> object:
        """See Objects."""
        self.opened.append(name)
        if name in self.errors:
            raise self.errors[name]
        return super().open(name)

    def damage(self, name: str, *, row_group: int = 0) -> None:
        """Flip a bit of the payloads of a row group."""
        self._whole.setdefault(name, self._objects[name])
        self._objects[name] = damaged(self._objects[name], row_group)

    def repair(self, name: str) -> None:
        """Undo all of that."""
        self.errors.pop(name, None)
        self._objects[name] = self._whole.pop(name, self._objects[name])


def damaged(data: pa.Buffer, row_group: int = 0) -> pa.Buffer:
    """The segment *data* with a flipped bit in the payloads of a row group."""
    groups = pq.read_metadata(pa.BufferReader(data))
    chunk = groups.row_group(row_group).column(3)
    content = bytearray(data)
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    return pa.py_buffer(bytes(content))


async def seal_and_damage(broker: MemoryBroker, topic: str) -> str:
    """Seal the tail of *topic*, damage its newest segment, and return its name."""
    storage = broker.broker.storage
    found = broker.broker.topics.opened[TopicName.parse(topic)]
    await seal(storage, found.topic_id)
    name = found.segments[-1].object_name
    objects = storage.cache._objects
    objects._objects[name] = damaged(objects._objects[name])
    return name


def retry_reads_now(topic_log) -> None:
    """Let the next attempts to read segments be due now."""
    for error in topic_log._cache._failed.values():
        error.retry_at = 0.0


def forget_segments(topic_log) -> None:
    """Let the next reader of a segment open it again."""
    topic_log._cache._cached.clear()
