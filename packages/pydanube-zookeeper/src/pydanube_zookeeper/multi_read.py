"""The request that reads several nodes, which ZooKeeper has since version 3.6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct

from pydanube.model.lazy_dataclasses import dataclass

_ERROR = -1
_END = MultiHeader(-1, True, -1).serialize()


@dataclass(frozen=True, slots=True)
class MultiRead:
    """
    A request for the data of *paths*; see ``kazoo.protocol.serialization``.

    Its answer has the data and the state of each node, or None if it does not exist.
    """

    type: ClassVar[int] = 22
    paths: Sequence[str]

    def serialize(self) -> bytes:
        """Return the request as bytes."""
        header = MultiHeader(GetData.type, False, -1).serialize()
        parts = [bytes(header + GetData(path, None).serialize()) for path in self.paths]
        return b"".join((*parts, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[tuple[bytes, Any] | None]:
        """
        Return the answer that begins at *offset*.

        Raises:
            ZookeeperError: A node cannot be read.
        """
        found: list[tuple[bytes, Any] | None] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return found
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                if code != NoNodeError.code:
                    raise EXCEPTIONS[code]
                found.append(None)
            else:
                value, stat = GetData.deserialize(data, offset)
                (size,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size + max(0, size) + _STAT_BYTES
                found.append((value, stat))


_STAT_BYTES = 68
"""The size of a node's state."""


def reading(paths: Sequence[str]) -> Callable[[Any], Any]:
    """Return what sends a request for the data of *paths* by a client of kazoo."""

    def send(kazoo: Any) -> Any:
        result = kazoo.handler.async_result()
        kazoo._call(MultiRead(paths), result)  # noqa: SLF001  # As its own requests.
        return result

    return send
