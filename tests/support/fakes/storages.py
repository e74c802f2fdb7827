"""A storage in memory, and doubles of its dependencies that fail."""

from __future__ import annotations

import asyncio
import copy
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydanube.model.errors import ObjectsUnavailable, TopicFenced
from pydanube.model.policy import KEEP_ALL, TopicPolicy
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import MemoryFiles
from pydanube_broker.storage.segments.merging import MergingTimes
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.batches import frame_of
from support.fakes.manifests import MemoryManifest

A_NOW_US = 1_700_000_000_000_000


class FlakyObjects(MemoryObjects):
    """Objects that can be made to fail, and count calls."""

    def __init__(self) -> None:
        super().__init__(lambda: self.now_us)
        self.now_us = A_NOW_US
        self.failing: set[str] = set()
        """Parts of names for which put() and delete() fail."""
        self.put_count = 0
        self.open_count = 0
        self.examined: list[str] = []
        """The objects whose age was asked for."""

    async def put(self, name, data):
        self.put_count += 1
        self._maybe_fail(name)
        await super().put(name, data)

    async def delete(self, name):
        self._maybe_fail(name)
        await super().delete(name)

    async def stat(self, name):
        self.examined.append(name)
        return await super().stat(name)

    def open(self, name):
        self.open_count += 1
        return super().open(name)

    @property
    def stored(self):
        """The objects by name."""
        return self._objects

    def _maybe_fail(self, name):
        if any(part in name for part in self.failing):
            raise ObjectsUnavailable(f"{name}: on purpose")


class FencedManifest(MemoryManifest):
    """A manifest that knows of newer epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[int, int] = {}

    async def change(self, topic_id, epoch, **changes):
        if self.epochs.get(topic_id, epoch) > epoch:
            raise TopicFenced(f"topic {topic_id}: on purpose")
        await super().change(topic_id, epoch, **changes)


@dataclass
class World:
    """The state that survives a storage, and the time."""

    files: object = field(default_factory=MemoryFiles)
    objects: FlakyObjects = field(default_factory=FlakyObjects)
    manifest: FencedManifest = field(default_factory=FencedManifest)
    reserve: object = None
    merging: MergingTimes = field(default_factory=MergingTimes)
    now: float = 0.0
    wall: int = A_NOW_US

    @asynccontextmanager
    async def storage(self, **config):
        config.setdefault("seal_pace", 0.0)
        config.setdefault("replaced_keep_s", 60.0)
        config.setdefault("seal_interval_s", 3600.0)
        async with open_storage(
            StorageConfig(**config),
            files=self.files,
            objects=self.opened_objects(),
            manifest=self.manifest,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            reserve=self.reserve,
            merging=self.merging,
            claim_remote=self.claim_remote,
        ) as storage:
            yield storage

    claim_remote = None
    """See ``open_storage``."""

    def opened_objects(self):
        """Return the objects as a storage uses them."""
        return self.objects

    def copy(self) -> World:
        return copy.deepcopy(self)


async def open_topic(storage, topic_id=1, epoch=1, policy=None, name=None):
    policy = policy or TopicPolicy()
    log = await storage.open_log(
        topic_id, name or f"/default/t{topic_id}", epoch, policy
    )
    log.configure(policy, policy.effective_retention(KEEP_ALL))
    return log


async def publish(log, *payloads, **fields):
    """Append one batch and wait until it is committed."""
    future = asyncio.get_running_loop().create_future()

    def done(error):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    base = log.append_nowait(frame_of(payloads, **fields), done)
    await future
    return base


async def seal(storage, topic_id):
    """Seal all messages of a topic that are committed now."""
    log = storage.logs[topic_id]
    end = log.end_offset
    while log.sealed_offset < end:
        if log.refusal is not None:
            raise log.refusal
        await storage.sealer._seal_one(log)


async def read_all(log, base=None, bytes_max=1 << 20):
    """All frames from *base* on, as a reader without a subscription reads them."""
    at, frames = log.base_offset if base is None else base, []
    while at < log.end_offset:
        frames += await log.read(at, bytes_max=bytes_max)
        at = frames[-1].end
    return frames


async def until(condition):
    """Let other tasks run until *condition* holds."""
    # There is no event to wait for.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def wake(storage) -> None:
    """Let the sealer look at the clock now."""
    storage.memory.due.set()


def search_orphans(storage, log) -> None:
    """Let the sealer search for orphans of *log*, as it does after opening it."""
    storage.sealer.on_opened(log)
