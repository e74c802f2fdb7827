"""The journal that a broker's settings choose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from pydanube.model.errors import InvalidConfig
from pydanube.model.plugins import JOURNALS, has_plugin, load_plugin
from pydanube.objects.opening import open_objects
from pydanube.objects.redis_objects import open_redis
from pydanube.objects.store import Objects
from pydanube_broker.broker.journal_sessions import MetadataSessions
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.cluster.session_journals import OwnSessionJournal
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.directories.identity import ClusterIdentity
from pydanube_broker.storage.config import (
    FILES,
    GIB,
    JournalConfig,
    ObjectJournalConfig,
    StorageConfig,
)
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.group_files import GroupFiles
from pydanube_broker.storage.journal.journal import Journal, open_journal
from pydanube_broker.storage.journal.journal_opening import JournalOpening, OpenJournal
from pydanube_broker.storage.journal.journal_sessions import JournalSessions
from pydanube_broker.storage.journal.object_journal import ROOT, open_object_journal
from pydanube_broker.storage.journal.object_recovery import (
    FIRST_SESSION,
    new_session_id,
    prefix_of,
)
from pydanube_broker.storage.journal.recovery import Recovery
from pydanube_broker.storage.journal.reserve import Reserve

BYTES_MAX = 4 * GIB
"""The size of the journal of a process from which messages are refused, at least."""
OTHER_REQUESTS_MAX = 32
"""How many objects may be read and removed while groups are stored."""


def journal_place(config: StorageConfig, directory: DataDirectory) -> str:
    """Return where the journal is: its directory, or the URL of its store."""
    if config.journal.kind == "local":
        return str(directory.journal)
    return config.journal_url


def open_journal_objects(config: StorageConfig) -> Objects:
    """
    Open the store of the journals of a cluster.

    Raises:
        InvalidConfig: The URL or an option is invalid.
        MissingExtra: OpenDAL is not installed.
    """
    if config.journal.kind == FILES:
        return GroupFiles(Path(config.journal_url))
    limits = config.journal.object
    return open_objects(
        config.journal_url,
        limits.options if limits.url else config.remote.options,
        timeout_s=limits.timeout_s,
        concurrency=limits.in_flight_max + OTHER_REQUESTS_MAX,
    )


@asynccontextmanager
async def open_kind_object(opening: JournalOpening) -> AsyncIterator[Journal]:
    """Open a journal of the kind ``object``."""
    objects = open_journal_objects(opening.config)
    await opening.claim(objects)
    limits = opening.config.journal.object
    async with open_object_journal(
        objects, limits=limits, **opening.for_objects()
    ) as journal:
        yield journal


@asynccontextmanager
async def open_kind_redis(opening: JournalOpening) -> AsyncIterator[Journal]:
    """
    Open a journal of the kind ``redis``.

    Raises:
        InvalidConfig: The server loses acknowledged changes when it stops.
    """
    limits = opening.config.journal.redis
    async with open_redis(
        limits.url,
        limits.options,
        timeout_s=limits.timeout_s,
        concurrency=limits.in_flight_max + OTHER_REQUESTS_MAX,
        replicas_min=limits.replicas_min,
    ) as objects:
        await objects.verify_durability()
        await opening.claim(objects)
        async with open_object_journal(
            objects, limits=limits, **opening.for_objects()
        ) as journal:
            yield journal


@asynccontextmanager
async def open_kind_files(opening: JournalOpening) -> AsyncIterator[Journal]:
    """Open a journal of the kind ``files``, for one of the processes of a broker."""
    config = opening.config
    files = GroupFiles(Path(config.journal_url), make_room=opening.reserve.release)
    session_id = opening.new_session_id()
    limits = ObjectJournalConfig(
        linger_ms=0.0,
        # The next group is collected while the disk stores one.
        in_flight_max=1,
        groups_max=0,
        bytes_max=max(4 * config.journal_bytes_max, BYTES_MAX),
    )
    with files.open_session(prefix_of(ROOT, FIRST_SESSION, session_id)):
        async with open_object_journal(
            files,
            limits=limits,
            **(opening.for_objects() | {"new_session_id": lambda: session_id}),
        ) as journal:
            yield journal


BUILT_IN: dict[str, OpenJournal] = {
    "object": open_kind_object,
    "redis": open_kind_redis,
}
"""The kinds of journals besides the local one that need no other package."""


def find_kind(kind: str) -> OpenJournal:
    """
    Return the function that opens journals of *kind*, which is not ``local``.

    Raises:
        InvalidConfig: There is none.
    """
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    if not has_plugin(JOURNALS, kind):
        raise InvalidConfig(
            f"storage.journal.kind: there is no kind {kind!r}; use "
            f"{', '.join(['local', *BUILT_IN])}, or install the package that adds "
            f"it (with an entry point in the group {JOURNALS})"
        )
    found: OpenJournal = load_plugin(JOURNALS, kind)
    return found


def journal_opener(
    config: StorageConfig,
    identity: ClusterIdentity,
    store: MetadataStore,
    session: ClusterSession | None = None,
) -> Callable[..., AbstractAsyncContextManager[Journal]]:
    """
    Return the function that opens the journal, as ``open_storage`` calls it.

    In a cluster, the *session* of the broker has a journal of its own.

    Raises:
        InvalidConfig: There is no such kind of journal.
    """
    if config.journal.kind == "local":
        return partial(
            open_journal, new_id=identity.journal_id, check=identity.check_journal
        )
    is_file = session is not None and config.journal.kind == FILES
    open_kind = open_kind_files if is_file else find_kind(config.journal.kind)
    sessions: JournalSessions = MetadataSessions(store)
    check: Callable[[Recovery], None] = identity.check_journal
    new_id: Callable[[], bytes] = new_session_id
    if session is not None:
        sessions = OwnSessionJournal(session, store, kind=config.journal.kind)
        check, new_id = _accept, partial(bytes.fromhex, session.session_id)

    async def claim(objects: Objects) -> None:
        if session is None:
            has_sessions = bool(await sessions.load())
        else:
            has_sessions = bool(await store.scan(keys.SESSION_JOURNALS, limit=1))
        await identity.claim_journal(objects, has_sessions=has_sessions)

    @asynccontextmanager
    async def open_it(
        _: Files, __: JournalConfig, *, reserve: Reserve, clock: Callable[[], float]
    ) -> AsyncIterator[Journal]:
        opening = JournalOpening(
            config=config,
            journal_id=identity.journal_id(),
            sessions=sessions,
            claim=claim,
            check=check,
            new_session_id=new_id,
            reserve=reserve,
            clock=clock,
        )
        async with open_kind(opening) as journal:
            yield journal

    return open_it


def _accept(_: Recovery) -> None:
    """Accept the journal of a new session of a cluster, which is empty."""
