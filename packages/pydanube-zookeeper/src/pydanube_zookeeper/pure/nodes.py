"""
The nodes of a cluster in ZooKeeper.

Below ``/danube/NAME``:

- ``values/PATH`` has the value of a path, which is percent-encoded.  The node of a path
  that belongs to a session is called ``PATH:SESSION``.
- ``sessions/SESSION`` is an ephemeral node; ZooKeeper deletes it with the session.
- ``log/NUMBER`` has one change.  The newest ones are kept.
- ``head`` has the numbers of the newest and the oldest change in the log.  Each change
  writes it, on condition that nobody has written it since the change was planned.

A change writes all its nodes in one transaction, so they have the same zxid, which is
its revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from pydanube.model.errors import MetadataUnavailable

FORMAT_VERSION = 1

ROOT = "/danube"
"""The parent of all clusters."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``head``."""

    format: int = FORMAT_VERSION
    number: int = 0
    """The number of the newest change."""
    first: int = 1
    """The number of the oldest change in the log."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a change writes."""

    value: bytes | None
    """None: it is too large for the log, and only in its own node."""
    session_id: str | None = None
    """The session that the path belongs to from then on."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    writer: str
    """The store object that has made it."""
    attempt: int
    """The number of the change among those that its writer has tried to make."""
    first: int
    """The number of the oldest change in the log after this one."""
    changes: Mapping[str, Write | None]
    """By path; None: deleted."""


class Nodes:
    """The names of the nodes of one cluster."""

    def __init__(self, cluster_name: str) -> None:
        self.root = f"{ROOT}/{cluster_name}"
        self.head = f"{self.root}/head"
        self.log = f"{self.root}/log"
        self.sessions = f"{self.root}/sessions"
        self.values = f"{self.root}/values"

    def entry(self, number: int) -> str:
        """Return the node of the change *number* in the log."""
        return f"{self.log}/{number:020d}"

    def session(self, session_id: str) -> str:
        """Return the node of a session."""
        return f"{self.sessions}/{session_id}"

    def value(self, path: str, session_id: str | None) -> str:
        """Return the node of the value of *path*, which belongs to this session."""
        name = quote(path, safe="")
        return f"{self.values}/{name if session_id is None else f'{name}:{session_id}'}"

    def path_of(self, name: str) -> tuple[str, str | None]:
        """Return the path of the child *name* of ``values``, and its session."""
        path, _, session_id = name.partition(":")
        return unquote(path), session_id or None


def encode_head(head: Head) -> bytes:
    """Return the content of ``head``."""
    return msgspec.json.encode(head)


def decode_head(data: bytes) -> Head:
    """
    Return the content of ``head``.

    Raises:
        MetadataUnavailable: It is that of another format, or no head at all.
    """
    try:
        head = msgspec.json.decode(data, type=Head)
    except msgspec.DecodeError as error:
        raise MetadataUnavailable(
            f"the node head of the cluster in ZooKeeper is damaged: {error}"
        ) from error
    if head.format != FORMAT_VERSION:
        raise MetadataUnavailable(
            f"the cluster in ZooKeeper has format {head.format}; this version of "
            f"pydanube supports format {FORMAT_VERSION}"
        )
    return head


def encode_entry(entry: LogEntry) -> bytes:
    """Return the content of a node of the log."""
    return msgspec.msgpack.encode(entry)


def decode_entry(data: bytes) -> LogEntry:
    """
    Return the content of a node of the log.

    Raises:
        MetadataUnavailable: It is damaged.
    """
    try:
        return msgspec.msgpack.decode(data, type=LogEntry)
    except msgspec.DecodeError as error:
        raise MetadataUnavailable(
            f"the log of changes of the cluster in ZooKeeper is damaged: {error}"
        ) from error
