"""The settings of storage; the defaults suit a single machine."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidConfig
from pydanube.objects.addresses import parse_store_url

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

FILES = "files"
"""The kind of the journals of a broker with several processes; not for settings."""

AtLeastOne = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(ge=0.001)]


def _check_store(url: str, options: dict[str, str]) -> None:
    """Raise InvalidConfig unless a broker can use the store at *url*, if any."""
    if not url:
        if options:
            raise InvalidConfig(
                "options are set, but the url of the store is not; set it, as in "
                "s3://bucket/prefix"
            )
        return
    try:
        address = parse_store_url(url)
    except InvalidConfig as error:
        raise InvalidConfig(f"url: {error}") from error
    if address.service == "memory":
        raise InvalidConfig(
            "url: it names the memory of the broker, which a restart would lose; "
            "use a store that keeps objects, such as s3://bucket/prefix"
        )


class ObjectJournalConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of a journal in an object store."""

    url: str = ""
    """The URL of the store. Empty: that of ``storage.remote``, with its options. The
    names of the journal's objects begin with ``.journal/``."""
    options: dict[str, str] = {}
    """Options of the store, as for ``storage.remote``."""
    timeout_s: Interval = 10.0
    """How long a request to the store may take. After that its outcome is unknown, and
    the broker finds it out."""
    linger_ms: Annotated[float, Meta(ge=0, le=10_000)] = 50.0
    """How long a batch waits for other batches, which are stored in the same object. If
    no object was begun for this time, a batch is stored at once. This limits requests
    to 1000 / linger_ms per second, unless objects are full."""
    group_bytes_max: Annotated[int, Meta(ge=KIB, le=256 * MIB)] = 4 * MIB
    """The size from which an object is full. A batch is never divided."""
    in_flight_max: Annotated[int, Meta(ge=1, le=256)] = 8
    """How many objects may be stored at the same time."""
    groups_max: Annotated[int, Meta(ge=0)] = 2048
    """How many objects the journal may have until topics are sealed whose unsealed
    messages keep old objects from being deleted, when the messages are a minute old.
    The next owner of a topic reads all of them. 0: no limit."""
    outage_s: Seconds = 30.0
    """How long messages wait for a store that does not answer. After that, the broker
    refuses messages with objects_unavailable until the store answers again."""
    bytes_max: AtLeastOne = 4 * GIB
    """The size of the journal from which messages are refused with overloaded, because
    segments are not uploaded. A start reads all of the journal into memory. At least
    ``storage.journal_bytes_max``."""

    def __post_init__(self) -> None:
        """
        Check the URL.

        Raises:
            InvalidConfig: It is not the URL of a store, or contains credentials.
        """
        _check_store(self.url, self.options)


class RedisJournalConfig(
    ObjectJournalConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of a journal in Redis or Valkey."""

    url: str = ""
    """The URL of the server, as in ``redis://host:6379/prefix``; ``rediss://`` is with
    TLS."""
    options: dict[str, str] = {}
    """``username``, ``password`` and ``db``; ``password_file`` names a file with the
    password."""
    timeout_s: Interval = 5.0
    """How long a request to the server may take. After that its outcome is unknown, and
    the broker finds it out."""
    linger_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0.0
    """How long a batch waits for other batches, which are stored with it."""
    groups_max: Annotated[int, Meta(ge=0)] = 0
    """As for a journal in an object store. 0: no limit, because Redis reads many small
    groups quickly."""
    replicas_min: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many replicas must have a message before it is acknowledged, in addition to
    the server's disk."""


class JournalConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of the journal."""

    kind: Annotated[str, Meta(min_length=1)] = "local"
    """Where the journal is: ``local`` is the data directory, ``object`` an object
    store, ``redis`` a Redis server; packages can add kinds. With all but ``local``,
    acknowledged messages survive the loss of the disk; they need ``storage.remote.url``
    and a metadata store outside of the data directory."""
    options: dict[str, str] = {}
    """Options of a kind that another package adds. In the environment, a JSON
    object."""
    object: ObjectJournalConfig = ObjectJournalConfig()
    """The object store of the kind ``object``."""
    redis: RedisJournalConfig = RedisJournalConfig()
    """The server of the kind ``redis``."""
    file_bytes_max: Annotated[int, Meta(ge=KIB)] = 64 * MIB
    """The size at which the journal begins a new file. A group is never divided."""
    pending_bytes_max: AtLeastOne = 64 * MIB
    """How many bytes may wait for the disk or the object store before publishers have
    to wait."""


class RemoteConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of the remote object store, to which segments are uploaded."""

    url: str = ""
    """The URL of the store, as in ``s3://bucket/prefix``. Empty: there is none, and
    segments are only on the local disk. Credentials do not belong into the URL."""
    options: dict[str, str] = {}
    """Options of the store, such as ``region`` and ``endpoint``. An option whose name
    ends in ``_file`` names a file that contains the value. In the environment, a JSON
    object."""
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 4
    """How many segments are uploaded at the same time."""
    requests_max: Annotated[int, Meta(ge=1, le=1024)] = 32
    """How many requests to the store are under way at the same time, of uploads and of
    readers together. A large object is uploaded with up to 4 requests at a time, and
    readers have at most 16."""
    timeout_s: Interval = 60.0
    """How long a request to the store may take."""
    retries: Annotated[int, Meta(ge=0)] = 3
    """How often a failed request is repeated at once. After that the upload is repeated
    after growing pauses, forever."""
    upload_bytes_per_s: Annotated[int, Meta(ge=0)] = 0
    """The mean rate of all uploads together. 0: no limit."""
    local_bytes_max: AtLeastOne = 64 * GIB
    """The size of all segments on the local disk. The oldest uploaded ones are removed
    there to make room for new ones. Publishing is refused while segments that are not
    uploaded yet take more."""
    read_cache_bytes_max: Annotated[int, Meta(ge=0)] = GIB
    """The size of the cache on the local disk for parts of segments that are read from
    the store."""

    def __post_init__(self) -> None:
        """
        Check the URL.

        Raises:
            InvalidConfig: It is not the URL of a store, or contains credentials.
        """
        _check_store(self.url, self.options)


class NamedStoreConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """An object store that requests may name."""

    url: str = ""
    """The URL of the store, as in ``s3://bucket/prefix`` or ``fs:///directory``."""
    options: dict[str, str] = {}
    """Options of the store, as for ``storage.remote``."""

    def __post_init__(self) -> None:
        """
        Check the URL.

        Raises:
            InvalidConfig: It is not the URL of a store, or contains credentials.
        """
        if not self.url:
            raise InvalidConfig(
                "url: expected the URL of a store, such as s3://bucket/prefix, got "
                "nothing"
            )
        _check_store(self.url, self.options)


class StorageConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of the journal, of tails in memory, and of segments."""

    journal: JournalConfig = JournalConfig()
    """The write-ahead journal."""
    remote: RemoteConfig = RemoteConfig()
    """The remote object store, if there is one."""
    seal_bytes: AtLeastOne = 64 * MIB
    """The size at which a topic's messages are sealed as a segment. Messages count
    before compression, plus 16 bytes for each."""
    seal_age_s: Seconds = 600.0
    """The age at which a message is sealed even if its segment is small."""
    seal_pace: Annotated[float, Meta(ge=0)] = 1.0
    """The pause after each segment, as a multiple of the time that sealing it took."""
    seal_interval_s: Interval = 1.0
    """How often the sealer checks for topics that are due, unless it is woken."""
    tail_bytes_max: AtLeastOne = 512 * MIB
    """
    How much memory the unsealed messages of all topics may take, in all processes of
    the broker together. Messages count as for ``seal_bytes``, and each batch of them
    600 bytes more. While a segment is written, two row groups count as well, but at
    most an eighth of this.

    From three quarters of this, the largest topics are sealed at once; at the limit,
    publishers wait.
    """
    journal_bytes_max: AtLeastOne = GIB
    """The size of the journal from which topics are sealed whose unsealed messages keep
    old journal files from being deleted."""
    row_group_bytes: AtLeastOne = 8 * MIB
    """The size of a row group, which is the smallest part of a segment that is read.
    Messages count as for ``seal_bytes``; a row group has at most 131,072 of them."""
    frame_bytes: AtLeastOne = MIB
    """The size of the batches that are read from segments; a longer message is a batch
    of its own."""
    cache_bytes_max: Annotated[int, Meta(ge=0)] = 128 * MIB
    """The size of the cache of decoded segment data."""
    retention_interval_s: Interval = 60.0
    """How often retention is applied to open topics. Others are opened for it if they
    have something to drop: one interval after the start, then every 60 intervals."""
    merge_bytes: Annotated[int, Meta(ge=0)] = 16 * MIB
    """The size of the segments that the broker makes of small neighbours of a topic
    while it is idle. 0: it merges none."""
    replaced_keep_s: Seconds = 600.0
    """How long a replaced segment is kept for readers that have it open."""
    orphan_keep_s: Seconds = 7 * 86_400.0
    """How long an orphan is kept: an object that no manifest names, for example after a
    crash."""
    reserve_bytes: Annotated[int, Meta(ge=0)] = 16 * MIB
    """How much disk space is reserved. When the disk is full, the broker accepts no
    messages and uses this space for deletions, retention, cursors and metadata;
    publishing resumes when twice as much is free. 0 reserves nothing."""
    root: str = ""
    """The prefix of the names of segments in the object store."""

    @property
    def journal_url(self) -> str:
        """The URL of the journal; empty if it is in the data directory."""
        match self.journal.kind:
            case "local":
                return ""
            case "object":
                return self.journal.object.url or self.remote.url
            case "redis":
                return self.journal.redis.url
            case kind if kind == FILES:
                return self.journal.options["path"]
            case kind:
                return f"{kind}:"

    def __post_init__(self) -> None:
        """
        Check the settings together.

        Raises:
            InvalidConfig: The journal needs another setting.
        """
        kind = self.journal.kind
        if kind != "local" and not self.remote.url:
            raise InvalidConfig(
                f"journal.kind: the kind {kind!r} needs a remote object store, to "
                "which segments are uploaded before they leave the journal; set "
                "storage.remote.url"
            )
        limits = {"object": self.journal.object, "redis": self.journal.redis}
        if kind in limits and limits[kind].bytes_max < self.journal_bytes_max:
            raise InvalidConfig(
                f"journal.{kind}.bytes_max: expected at least journal_bytes_max, from "
                "which topics are sealed to make the journal shorter; it is "
                f"{self.journal_bytes_max}, got {limits[kind].bytes_max}"
            )
        if kind == "redis" and not self.journal.redis.url:
            raise InvalidConfig(
                "journal.redis.url: the kind 'redis' needs the URL of a server, as in "
                "redis://host:6379/prefix"
            )


class StagingConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of staged batches, which are kept until they are committed."""

    bytes_max: AtLeastOne = 16 * GIB
    """The disk space for all staged parts together; more is refused."""
    expiry_s: Interval = 86_400.0
    """How long a part is kept that is neither written nor committed. A restart of the
    broker starts this time again."""
    query_memory_s: Interval = 90 * 86_400.0
    """How long the last committed version of a query is remembered. A client that
    repeats a commit after this time publishes the messages twice."""
    queries_max: AtLeastOne = 10_000
    """How many queries are remembered; the one with the oldest commit is forgotten
    first."""
