"""An object store in the memory of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pydanube.objects.store import ObjectInfo, Objects, wall_clock_us
from pydanube.wire.buffer import Buffer


class MemoryObjects(Objects):
    """Objects in the memory of the process."""

    def __init__(self, wall_clock_us: Callable[[], int] = wall_clock_us) -> None:
        self._objects: dict[str, pa.Buffer] = {}
        self._modified_at: dict[str, int] = {}
        self._wall_clock_us = wall_clock_us

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        self._objects[name] = pa.py_buffer(bytes(data))
        self._modified_at[name] = self._wall_clock_us()

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        if name in self._objects:
            return False
        await self.put(name, data)
        return True

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        found = self._objects.get(name)
        return None if found is None else memoryview(found)[begin:end]

    def open(self, name: str) -> Any:
        found = self._objects.get(name)
        if found is None:
            raise FileNotFoundError(name)
        return pa.BufferReader(found)

    async def delete(self, name: str) -> None:
        self._objects.pop(name, None)

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        names = (each for each in self._objects if each.startswith(prefix))
        return sorted(each for each in names if each > after)[:count_max]

    async def stat(self, name: str) -> ObjectInfo | None:
        found = self._objects.get(name)
        if found is None:
            return None
        return ObjectInfo(found.size, self._modified_at[name])

    def url(self, name: str) -> str:
        return f"memory:///{name}"
