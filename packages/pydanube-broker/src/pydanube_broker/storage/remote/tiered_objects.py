"""
Two object stores as one: a local one for new objects, and a remote one behind it.

Objects are put into the local store, and copied to the remote store by the Uploader.
Which objects have a remote copy is in the manifest; which have a local copy, only the
local store knows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pydanube.objects.opening import open_objects
from pydanube.objects.store import NewObject, ObjectInfo, Objects
from pydanube.wire.buffer import Buffer
from pydanube_broker.storage.config import RemoteConfig

MARKER_NAME = ".cluster.json"
"""The object with the cluster id; table readers ignore names that begin with a dot."""

DELETIONS_MAX = 100_000
"""
How many remote deletions are remembered.

An object beyond that is an orphan, which the search for orphans finds.
"""


def open_remote(config: RemoteConfig) -> Objects:
    """
    Open the remote object store of *config*; this sends no request.

    Raises:
        InvalidConfig: The store cannot be used with these settings.
        MissingExtra: OpenDAL is not installed.
    """
    return open_objects(
        config.url,
        config.options,
        timeout_s=config.timeout_s,
        retries=config.retries,
        concurrency=config.requests_max,
    )


class TieredObjects(Objects):
    """
    Objects in *local*, and copies of them in *remote* under the same names.

    Readers get the local copy if there is one, otherwise the remote copy.  Only reading
    an object that has no local copy asks the remote store; ``names`` lists the local
    store alone, because brokers must start while the remote store is away.
    """

    def __init__(self, local: Objects, remote: Objects) -> None:
        self.local = local
        self.remote = remote
        self.remote_deletions: dict[str, None] = {}
        """Names to delete from the remote store, the first ones first."""
        # None until they are known; then which of them changed meanwhile.
        self._local_names: set[str] | None = None
        # The directories in which local copies are or were, and those above them.
        self._directories: set[str] = set()
        self._changes: dict[str, bool] = {}

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        self._note_directories(name)
        await self.local.put(name, data)
        self._note(name, is_local=True)

    def new_object(self) -> NewObject:
        return self.local.new_object()

    async def put_new(self, name: str, new: NewObject) -> None:
        self._note_directories(name)
        await self.local.put_new(name, new)
        self._note(name, is_local=True)

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        self._note_directories(name)
        is_stored = await self.local.put_if_absent(name, data)
        self._note(name, is_local=True)
        return is_stored

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        found = await self.local.read(name, begin, end)
        return await self.remote.read(name, begin, end) if found is None else found

    def open(self, name: str) -> Any:
        try:
            return self.local.open(name)
        except FileNotFoundError:
            return self.remote.open(name)

    async def delete(self, name: str) -> None:
        """
        Remove the local copy, and the remote copy as soon as the remote store answers.

        Durability: After a crash, a remote copy may be left as an orphan.
        """
        await self.local.delete(name)
        self._note(name, is_local=False)
        self.delete_remote(name)

    def delete_remote(self, name: str) -> None:
        """Have the remote copy deleted later."""
        if len(self.remote_deletions) < DELETIONS_MAX:
            self.remote_deletions[name] = None

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        is_known = self._local_names is not None and prefix.endswith("/")
        if is_known and prefix not in self._directories:
            # A broker that takes over many topics need not look for each.
            return []
        return await self.local.names(prefix, after=after, count_max=count_max)

    async def stat(self, name: str) -> ObjectInfo | None:
        found = await self.local.stat(name)
        return await self.remote.stat(name) if found is None else found

    def url(self, name: str) -> str:
        """Return the URL of the local copy, or of the remote one if there is none."""
        return (self.local if self.is_local(name) else self.remote).url(name)

    # The local copies.

    async def list_local(self) -> None:
        """Find out which objects have a local copy, perhaps not for the first time."""
        # Changes during the listing are noted beside it.
        self._local_names = None
        found = set(await self.local.names(""))
        found.update(name for name, is_local in self._changes.items() if is_local)
        found.difference_update(
            name for name, is_local in self._changes.items() if not is_local
        )
        self._changes.clear()
        self._local_names = found
        for name in found:
            self._note_directories(name)

    def is_local(self, name: str) -> bool:
        """Return whether there is a local copy; True until ``list_local`` has ended."""
        return self._local_names is None or name in self._local_names

    async def find_local(self, name: str) -> None:
        """Find out whether an object that somebody else has stored is local."""
        self._note_directories(name)
        self._note(name, is_local=await self.local.stat(name) is not None)

    async def evict(self, name: str) -> None:
        """Remove the local copy of an object that has a remote copy."""
        await self.local.delete(name)
        self._note(name, is_local=False)

    def _note(self, name: str, *, is_local: bool) -> None:
        if self._local_names is None:
            self._changes[name] = is_local
        elif is_local:
            self._local_names.add(name)
        else:
            self._local_names.discard(name)

    def _note_directories(self, name: str) -> None:
        """Note that an object of this name is stored, or may be."""
        end = len(name)
        while (end := name.rfind("/", 0, end)) > 0:
            directory = name[: end + 1]
            if directory in self._directories:
                return
            self._directories.add(directory)
