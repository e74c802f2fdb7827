"""Storages that upload to a remote store, which fails, damages objects, or waits."""

from __future__ import annotations

import asyncio
from typing import Any

from pydanube.model.errors import ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from support.fakes.storages import World


class RemoteObjects(MemoryObjects):
    """Objects in memory that behave as badly as a test says."""

    def __init__(self, wall_clock_us: Any) -> None:
        super().__init__(wall_clock_us)
        self.is_away = False
        """Whether every request fails."""
        self.is_unknown = False
        """Whether put() and delete() succeed, and raise nevertheless."""
        self.damages = False
        """Whether put() stores other bytes."""
        self.gate: asyncio.Event | None = None
        """What put() waits for, if anything."""
        self.puts: list[str] = []
        """The names of all put() in order, whether or not they failed."""
        self.waiting = 0
        """How many put() wait."""

    async def put(self, name: str, data: Any) -> None:
        self.puts.append(name)
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
            self.waiting -= 1
        self._check()
        await super().put(name, bytes(data)[::-1] if self.damages else data)
        self._check_known()

    async def read(self, name: str, begin: int = 0, end: int | None = None) -> Any:
        self._check()
        return await super().read(name, begin, end)

    async def delete(self, name: str) -> None:
        self._check()
        await super().delete(name)
        self._check_known()

    async def names(self, prefix: str, **limits: Any) -> list[str]:
        self._check()
        return await super().names(prefix, **limits)

    async def stat(self, name: str) -> Any:
        self._check()
        return await super().stat(name)

    def open(self, name: str) -> Any:
        if self.is_away:
            raise OSError(110, "the store is away")
        return super().open(name)

    def url(self, name: str) -> str:
        return f"s3://bucket/{name}"

    @property
    def stored(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self._objects.items()}

    def _check(self) -> None:
        if self.is_away:
            raise ObjectsUnavailable("s3://bucket does not answer")

    def _check_known(self) -> None:
        if self.is_unknown:
            raise ObjectsUnavailable("s3://bucket has not answered in time")


class UploadWorld(World):
    """A world whose storages upload segments; ``objects`` are the local ones."""

    def __init__(self) -> None:
        super().__init__()
        self.remote = RemoteObjects(lambda: self.wall)
        self.claims: list[bool] = []
        """The calls of claim_remote(): whether segments were uploaded before."""

    def opened_objects(self) -> TieredObjects:
        """See World."""
        return TieredObjects(self.objects, self.remote)

    async def claim_remote(self, has_uploads: bool) -> None:
        """See ``open_storage``."""
        self.claims.append(has_uploads)
