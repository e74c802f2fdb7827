"""Opening the storage: recovery, the caches, and the tasks that seal and upload."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from pydanube.aio.tasks import task_scope
from pydanube.objects.store import Objects, wall_clock_us
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.journal import Journal, open_journal
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.manifest import HoldableManifest, Manifest
from pydanube_broker.storage.segments.merging import MergingTimes
from pydanube_broker.storage.segments.range_cache import RangeCache
from pydanube_broker.storage.segments.remote_segments import RemoteSegments
from pydanube_broker.storage.segments.removal_lock import RemovalLock
from pydanube_broker.storage.segments.segment_cache import (
    SegmentCache,
    open_segment_cache,
)
from pydanube_broker.storage.storage import Storage

REMOTE_READS_MAX = 16
"""How many ranges of remote segments are requested at the same time."""

# One for the row group that a reader waits for, one for reading ahead.
_READ_THREADS = 2

_MERGING = MergingTimes()


@asynccontextmanager
async def open_storage(
    config: StorageConfig,
    *,
    files: Files,
    objects: Objects,
    manifest: Manifest,
    removal_lock: RemovalLock | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], int] = wall_clock_us,
    reserve: Reserve | None = None,
    claim_remote: Callable[[bool], Awaitable[None]] | None = None,
    cache_path: Path | None = None,
    new_journal: Callable[..., AbstractAsyncContextManager[Journal]] = open_journal,
    merging: MergingTimes = _MERGING,
) -> AsyncIterator[Storage]:
    """
    Recover and open the storage over *files*, and seal topics while it is open.

    The processes of one broker have *removal_lock* in common.

    *reserve* is released when the disk is full; by default there is none.
    *wall_clock* returns microseconds since 1970, UTC; *new_journal* opens the journal
    in *files*.

    With *claim_remote*, segments are uploaded to the remote store of *objects* while
    the storage is open.  Before the first upload, it raises if the store is not this
    cluster's; its argument says whether segments were uploaded before.  What is read
    from the remote store is cached in the directory *cache_path*, if it is given.

    When the context ends, everything that was appended is committed; unsealed messages
    stay in the journal.  An error of the body is raised unchanged.

    Raises:
        CorruptJournal: There is damage that a crash cannot explain.
        OSError: The files cannot be read or written.
    """
    with (
        ThreadPoolExecutor(1, thread_name_prefix="seal") as seal_thread,
        ThreadPoolExecutor(
            _READ_THREADS, thread_name_prefix="segments"
        ) as read_threads,
    ):
        async with (
            _open_cache(config, objects, cache_path, read_threads) as cache,
            new_journal(files, config.journal, reserve=reserve, clock=clock) as journal,
        ):
            storage = Storage(
                config,
                journal,
                objects,
                HoldableManifest(manifest, removal_lock),
                cache=cache,
                seal_thread=seal_thread,
                claim_remote=claim_remote,
                clock=clock,
                wall_clock=wall_clock,
                merging=merging,
            )
            async with task_scope() as tasks:
                tasks.run(storage.sealer.run(), "seal topics")
                if config.merge_bytes:
                    tasks.run(storage.merger.run(), "merge segments")
                if storage.uploader is not None:
                    tasks.run(storage.uploader.run(), "upload segments")
                yield storage


@asynccontextmanager
async def _open_cache(
    config: StorageConfig, objects: Objects, path: Path | None, read_threads: Executor
) -> AsyncIterator[SegmentCache]:
    """Open the cache of segments; *path* is the directory of its part on the disk."""
    remote, ranges = None, None
    with ThreadPoolExecutor(1, thread_name_prefix="range cache") as thread:
        if isinstance(objects, TieredObjects):
            bytes_max = config.remote.read_cache_bytes_max
            if path is not None and bytes_max:
                ranges = RangeCache(path, thread, bytes_max=bytes_max)
                await ranges.open()
            remote = RemoteSegments(
                objects.remote,
                is_local=objects.is_local,
                cache=ranges,
                requests_max=REMOTE_READS_MAX,
            )
            objects = objects.local
        async with open_segment_cache(
            objects,
            read_threads,
            frame_bytes=config.frame_bytes,
            bytes_max=config.cache_bytes_max,
            remote=remote,
        ) as cache:
            yield cache
