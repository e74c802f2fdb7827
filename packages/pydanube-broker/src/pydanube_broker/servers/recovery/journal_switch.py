"""
Switching a broker to a journal of another kind.

The broker reads the journal of the kind in the metadata store, and writes its whole
state, with all messages that are not sealed, to an empty journal of the kind in the
settings.  Then it changes the kind in the metadata store.  Before this change, a crash
leaves the old journal as it was, and the next start begins again; after it, the old
journal is not needed any more.
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from time import perf_counter

import msgspec

from pydanube.model.errors import InvalidConfig
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.broker.journal_sessions import MetadataSessions
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import JournalRecord
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.directories.identity import ClusterIdentity
from pydanube_broker.servers.directories.journals import journal_opener, journal_place
from pydanube_broker.servers.recovery.recover import preserve
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.journal.journal_copying import JournalCopy
from pydanube_broker.storage.journal.reserve import Reserve

log = logging.getLogger(__name__)


async def switch_journal(
    config: StorageConfig, identity: ClusterIdentity, store: MetadataStore
) -> None:
    """
    Copy the journal of ``identity.recorded_kind`` to a new one of the configured kind.

    Durability: On return the new journal has everything, and the metadata store says
        that it is the journal.  After a failure the old one still is.

    Cancellation: Safe at any point.

    Raises:
        InvalidConfig: The settings do not name the store of the old journal.
        CorruptJournal, InconsistentDirectory: The old journal is damaged, missing or
            incomplete.
        JournalFailed, ObjectsUnavailable, DiskFull: Try again.
    """
    recorded = identity.recorded_kind
    assert recorded is not None
    old_config, directory = _with_kind(config, recorded), identity.directory
    if config.journal.kind == "local":
        await _check_segments(identity, store)
        # What an interrupted switch has left, or an earlier local journal.
        _set_aside(directory)
    async with AsyncExitStack() as opened:
        old_identity = replace(
            identity, kind=recorded, journal=journal_place(old_config, directory)
        )
        old = await opened.enter_async_context(
            open_whole(old_config, old_identity, store)
        )
        sessions = MetadataSessions(store)
        if recorded == "local":
            # The same; their objects stay in the store.
            await sessions.replace(await sessions.load(), ())
        new = await opened.enter_async_context(
            open_whole(config, replace(identity, journal_end=None), store)
        )
        log.info(
            "copying the journal of the kind %r to one of the kind %r",
            recorded,
            config.journal.kind,
        )
        copy = JournalCopy(snapshot=list(old.state.snapshot()), frames=old.recovered)
        for entry in copy.entries():
            if not new.has_room:
                await new.wait_for_room()
            new.append(entry, None)
        await new.sync()
        end = new.durable_end
        record = JournalRecord(
            file_number=end.number, position=end.position, kind=config.journal.kind
        )
        await store.put(keys.JOURNAL, record)
    if recorded == "local":
        _set_aside(directory)
    else:
        await sessions.replace(await sessions.load(), ())
    log.warning(
        "the journal is of the kind %r now; the old one is not needed any more: %s",
        config.journal.kind,
        "the directory 'replaced' has it"
        if recorded == "local"
        else old_identity.journal,
    )


def _with_kind(config: StorageConfig, kind: str) -> StorageConfig:
    journal = msgspec.structs.replace(config.journal, kind=kind)
    try:
        return msgspec.structs.replace(config, journal=journal)
    except InvalidConfig as error:
        raise InvalidConfig(
            f"the journal of this cluster is of the kind {kind!r}; to switch to the "
            f"kind {config.journal.kind!r}, keep the settings of the old one until the "
            f"broker has started: {error}"
        ) from error


async def _check_segments(identity: ClusterIdentity, store: MetadataStore) -> None:
    """
    Raise if the disk has lost segments that were not uploaded.

    Only a journal that outlives the disk takes their messages from the journal again.
    """
    objects = DirectoryObjects(identity.directory.objects)
    async for _, segment in MetadataManifest(store).all_segments():
        if segment.is_uploaded or await objects.stat(segment.object_name) is not None:
            continue
        raise InvalidConfig(
            "storage.journal.kind cannot be changed to 'local' now: "
            f"{segment.object_name} is neither in {identity.directory.objects} nor "
            f"uploaded. Start the broker with the kind {identity.recorded_kind!r}, "
            "which has the messages, wait until 'danube storage status' shows that "
            "everything is uploaded, and change it then"
        )


def _set_aside(directory: DataDirectory) -> None:
    """Move the files of a local journal to the directory ``replaced``."""
    if directory.journal.is_dir() and any(directory.journal.iterdir()):
        preserve(directory, [directory.journal])


def open_whole(
    config: StorageConfig, identity: ClusterIdentity, store: MetadataStore
) -> AbstractAsyncContextManager[Journal]:
    """Open the journal of a broker, of the kind in *config*, with all topics."""
    files = DirectoryFiles(identity.directory.journal)
    opener = journal_opener(config, identity, store)
    return opener(files, config.journal, reserve=Reserve(), clock=perf_counter)
