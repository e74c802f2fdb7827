"""The keys and values of one cluster in etcd."""

from __future__ import annotations

from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.store import Revision, Stored


class Keyspace:
    """Translates paths to keys of etcd, and back."""

    def __init__(self, cluster_name: str) -> None:
        self._root = f"/danube/{cluster_name}"

    def key(self, path: str) -> bytes:
        """Return the key of *path*."""
        return (self._root + path).encode()

    def path(self, key: bytes) -> str:
        """Return the path of *key*, which is one of this cluster."""
        return key.decode()[len(self._root) :]

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """Return the first key below *prefix*, and the first one after them."""
        begin = self.key(prefix)
        # A prefix ends with a slash, and "0" is the next character.
        return begin, begin[:-1] + b"0"


def stored_in(entry: pb.KeyValue) -> Stored[bytes]:
    """Return the value of *entry*, and the revision at which it was written."""
    return Stored(entry.value, Revision(entry.mod_revision))
