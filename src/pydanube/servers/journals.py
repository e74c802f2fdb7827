"""The journal that a broker's settings choose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from pydanube.broker.journal_sessions import MetadataSessions
from pydanube.metadata.store import MetadataStore
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube.servers.directory import DataDirectory
from pydanube.servers.identity import Identity
from pydanube.storage.config import JournalConfig, StorageConfig
from pydanube.storage.files import Files
from pydanube.storage.journal import Journal, open_journal
from pydanube.storage.object_journal import open_object_journal
from pydanube.storage.reserve import Reserve

OTHER_REQUESTS_MAX = 16
"""How many objects may be read and removed while groups are stored."""


def journal_place(config: StorageConfig, directory: DataDirectory) -> str:
    """Return where the journal is: its directory, or the URL of its store."""
    if config.journal.kind == "local":
        return str(directory.journal)
    return config.journal_url


def open_journal_objects(config: StorageConfig) -> Objects:
    """
    Open the store of an object journal.

    Raises:
        InvalidConfig: The URL or an option is invalid.
        MissingExtra: OpenDAL is not installed.
    """
    limits = config.journal.object
    return open_objects(
        config.journal_url,
        limits.options if limits.url else config.remote.options,
        timeout_s=limits.timeout_s,
        concurrency=limits.in_flight_max + OTHER_REQUESTS_MAX,
    )


def journal_opener(
    config: StorageConfig, identity: Identity, store: MetadataStore
) -> Callable[..., AbstractAsyncContextManager[Journal]]:
    """
    Return the function that opens the journal, as ``open_storage`` calls it.

    Raises: As open_journal_objects().
    """
    if config.journal.kind == "local":
        return partial(
            open_journal, new_id=identity.journal_id, check=identity.check_journal
        )
    objects = open_journal_objects(config)
    sessions = MetadataSessions(store)

    @asynccontextmanager
    async def open_in_store(
        _: Files,
        journal_config: JournalConfig,
        *,
        reserve: Reserve,
        clock: Callable[[], float],
    ) -> AsyncIterator[Journal]:
        has_sessions = bool(await sessions.load())
        # Before the fence, which must not be put into the store of another cluster.
        await identity.claim_journal(objects, has_sessions=has_sessions)
        async with open_object_journal(
            objects,
            sessions,
            journal_config,
            journal_config.object,
            journal_id=identity.journal_id(),
            reserve=reserve,
            check=identity.check_journal,
            clock=clock,
        ) as journal:
            yield journal

    return open_in_store
