"""
Objects in S3, Google Cloud Storage, Azure Blob Storage, Redis or another service that
OpenDAL knows.

OpenDAL repeats a request that fails and may succeed later, after growing delays.  The
exception is put_if_absent(): the answer to its first request may be lost, and a second
one would then say that the object exists, although this writer stored it.

Large objects are written in parts and read in pieces.  A failure then repeats little,
and OpenDAL copies the bytes of each call while it keeps the interpreter lock, so that a
call with many bytes would stop all threads for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pydanube.aio.chance import draw
from pydanube.aio.tasks import gather
from pydanube.model.errors import (
    InvalidConfig,
    InvalidRequest,
    NotFound,
    ObjectsUnavailable,
)
from pydanube.model.extras import require
from pydanube.model.retry import RetryPolicy
from pydanube.model.suggestions import did_you_mean
from pydanube.objects.addresses import StoreAddress, secrets_of
from pydanube.objects.free_memory import keep_free_memory
from pydanube.objects.loop_thread import check_not_forked, loop_thread
from pydanube.objects.opendal_errors import FailureKind, StoreFailure, failure_of
from pydanube.objects.remote_file import RemoteFile
from pydanube.objects.store import ObjectInfo, Objects
from pydanube.wire.buffer import Buffer

TIMEOUT_S = 30.0
RETRIES = 5
CONCURRENCY = 16

PART_BYTES = 8 * 1024 * 1024
"""Objects that are larger are written in parts of this size."""

PARTS_MAX = 4
"""The most parts of one object that are under way at the same time."""

PIECE_BYTES = 1024 * 1024
"""The most bytes that one call gives to OpenDAL."""

READ_BYTES = 4 * 1024 * 1024
"""The most bytes that one request reads, if the caller does not give another limit."""

TRUSTED_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes that are allocated without asking whether the object has them."""

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0

_UNORDERED = "--x-s3"
"""The end of the names of S3's directory buckets, which list in any order."""

_US_PER_S = 1_000_000


class StoreFailed(Exception):
    """A request failed; this class is translated before it leaves the module."""

    def __init__(self, failure: StoreFailure) -> None:
        super().__init__(str(failure))
        self.kind = failure.kind
        self.message = failure.message


class OpendalObjects(Objects):
    """
    Objects in a service that OpenDAL knows.

    Files that ``open`` returns work in any thread, also after the event loop has ended
    that the coroutines use.
    """

    def __init__(
        self,
        address: StoreAddress,
        options: Mapping[str, str],
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        concurrency: int = CONCURRENCY,
        request_bytes_max: int = READ_BYTES,
    ) -> None:
        """
        Prepare to use a store; nothing is sent yet.

        Args:
            address: The service, the bucket and the prefix of all names.
            options: All options of the service, as ``service_options`` returns them.
            timeout_s: The most seconds that a request may take, or a part of an object.
            retries: How often a failed request is repeated.
            concurrency: The most requests at the same time.
            request_bytes_max: The most bytes that one request reads.  OpenDAL copies
                its answer while it keeps the interpreter lock; the answers of a longer
                range are copied once more, without it.

        Raises:
            MissingExtra: OpenDAL is not installed.
            InvalidConfig: The service or an option is unknown or invalid.
        """
        require("objects", f"the object store {address.url}")
        import opendal  # noqa: PLC0415  # An extra.

        check_not_forked()
        keep_free_memory()
        _check_names(address, options, opendal.config)
        self._url = address.url
        self._request_bytes_max = request_bytes_max
        self._has_bucket = bool(address.authority)
        self._secrets = secrets_of(options)
        self._errors = tuple(
            kind
            for kind in vars(opendal.exceptions).values()
            if isinstance(kind, type) and issubclass(kind, Exception)
        )
        self._retry = RetryPolicy(_RETRY_FIRST_S, _RETRY_MAX_S, retries)
        try:
            bare = opendal.AsyncOperator(address.service, **options)
        except self._errors as error:
            failure = failure_of(error, self._secrets)
            raise InvalidConfig(
                f"the object store {self._url}: {failure.message}; check its options, "
                "and what the environment says about it"
            ) from None
        layers = opendal.layers
        limit = layers.ConcurrentLimitLayer(concurrency)
        timed = bare.layer(layers.TimeoutLayer(timeout_s, timeout_s))
        # Requests wait for their turn outside of the timeout.
        self._once = timed.layer(limit)
        self._operator = timed.layer(
            layers.RetryLayer(
                max_times=retries,
                jitter=True,
                min_delay=_RETRY_FIRST_S,
                max_delay=_RETRY_MAX_S,
            )
        ).layer(limit)
        capability = bare.capability()
        self._writes_parts: bool = capability.write_can_multi
        self._lists_in_order: bool = (
            capability.list_with_start_after
            and not address.authority.endswith(_UNORDERED)
        )
        self.supports_listing = capability.list
        self.supports_put_if_absent = capability.write_with_if_not_exists
        # Whether the bucket was there at least once.
        self._is_known_to_exist = False

    def __repr__(self) -> str:
        return f"OpendalObjects({self._url!r})"

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        with self._for_coroutines("writing", name):
            await self._write(self._operator, name, data)

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        if not self.supports_put_if_absent:
            raise InvalidRequest(
                f"the object store {self._url} cannot store an object only if it is "
                "absent; use S3, Google Cloud Storage, Azure Blob Storage or a "
                "directory"
            )
        failures = 0
        with self._for_coroutines("writing", name):
            # Some servers refuse a large object before they have read it, and the
            # answer is lost with the connection.
            if len(data) > PIECE_BYTES and await self._stat(name) is not None:
                return False
            while True:
                try:
                    await self._write(self._once, name, data, if_not_exists=True)
                except StoreFailed as failed:
                    if failed.kind is FailureKind.EXISTS:
                        return False
                    failures += 1
                    # The store says that it did nothing, so it is safe to repeat.
                    if failed.kind is not FailureKind.CONTENTION or (
                        not self._retry.allows(failures)
                    ):
                        raise
                else:
                    return True
                await asyncio.sleep(self._retry.delay_s(failures, draw))

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        """
        Return the bytes ``begin … end`` of an object; None if it does not exist.

        All of an object is one request.  If it may have more than a few MiB, give *end*
        or use open(): OpenDAL copies the answer while it keeps the interpreter lock.
        """
        with self._for_coroutines("reading", name):
            try:
                return await self._read(name, begin, end)
            except StoreFailed as failed:
                if failed.kind is not FailureKind.ABSENT:
                    raise
                await self._check_store()
                return None

    def open(self, name: str) -> RemoteFile:
        thread = loop_thread()
        with self._for_files("opening", name):
            info = thread.run(self._stat(name))
        if info is None:
            raise FileNotFoundError(f"{self.url(name)} does not exist")

        def read_into(begin: int, view: memoryview) -> None:
            with self._for_files("reading", name):
                thread.run(self._read_into(name, begin, view))

        return RemoteFile(self.url(name), info.byte_count, read_into)

    async def delete(self, name: str) -> None:
        with self._for_coroutines("deleting", name), self._translated():
            await self._operator.delete(_checked(name))

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        if not self.supports_listing:
            raise InvalidRequest(
                f"the object store {self._url} cannot list its objects; use S3, Google "
                "Cloud Storage, Azure Blob Storage or a directory"
            )
        with self._for_coroutines("listing", prefix):
            if self._lists_in_order:
                return await self._names(prefix, after, count_max)
            found = await self._names(prefix, "", None)
            return sorted(each for each in found if each > after)[:count_max]

    async def stat(self, name: str) -> ObjectInfo | None:
        with self._for_coroutines("reading", name):
            return await self._stat(name)

    def url(self, name: str) -> str:
        return f"{self._url}/{name}"

    async def _write(
        self,
        operator: Any,
        name: str,
        data: Buffer | pa.Buffer,
        *,
        if_not_exists: bool = False,
    ) -> None:
        path = _checked(name)
        options: dict[str, Any] = {"if_not_exists": True} if if_not_exists else {}
        with self._translated_by_bucket(), memoryview(data).cast("B") as view:
            if len(view) <= PIECE_BYTES:
                await operator.write(path, bytes(view), **options)
                return
            if self._writes_parts:
                # One request compares and stores in one step, if the service can.
                part_bytes = len(view) if if_not_exists else PART_BYTES
                options |= {"chunk": part_bytes, "concurrent": PARTS_MAX}
            writer = await operator.open(path, "wb", **options)
            for begin in range(0, len(view), PIECE_BYTES):
                await writer.write(bytes(view[begin : begin + PIECE_BYTES]))
            await writer.close()

    async def _read(self, name: str, begin: int, end: int | None) -> Buffer | None:
        if (begin, end) == (0, None):
            with self._translated():
                found: bytes = await self._operator.read(_checked(name))
                return found
        if end is not None and begin < end <= begin + TRUSTED_BYTES_MAX:
            # Usually the object reaches the end; then its size need not be requested.
            try:
                return await self._read_range(name, begin, end)
            except StoreFailed as failed:
                if failed.kind is not FailureKind.RANGE:
                    raise
        info = await self._stat(name)
        if info is None:
            return None
        end = info.byte_count if end is None else min(end, info.byte_count)
        return await self._read_pieces(name, begin, max(0, end - begin))

    async def _read_range(self, name: str, begin: int, end: int) -> Buffer:
        """Return bytes of an object, which it must reach."""
        if end - begin <= self._request_bytes_max:
            # Without another copy.
            with self._translated():
                found: bytes = await self._operator.read(
                    _checked(name), offset=begin, size=end - begin
                )
                return found
        return await self._read_pieces(name, begin, end - begin)

    async def _read_pieces(self, name: str, begin: int, byte_count: int) -> Buffer:
        """Return bytes of an object, which it must reach, read in several pieces."""
        memory = memoryview(pa.allocate_buffer(byte_count)).cast("B")
        # The pieces are copied in another thread, while the caller's loop goes on.
        work = self._read_into(name, begin, memory)
        await asyncio.wrap_future(loop_thread().start(work))
        return memory

    async def _read_into(self, name: str, begin: int, target: memoryview) -> None:
        """Fill *target*, which the object must reach."""

        async def read_piece(at: int) -> None:
            byte_count = min(self._request_bytes_max, len(target) - at)
            data = await self._operator.read(
                _checked(name), offset=begin + at, size=byte_count
            )
            # Arrow copies without the interpreter lock.
            piece = pa.py_buffer(target[at : at + byte_count])
            pa.FixedSizeBufferWriter(piece).write(data)

        with self._translated():
            await gather(
                read_piece(at) for at in range(0, len(target), self._request_bytes_max)
            )

    async def _stat(self, name: str) -> ObjectInfo | None:
        try:
            with self._translated():
                found = await self._operator.stat(_checked(name))
        except StoreFailed as failed:
            if failed.kind is not FailureKind.ABSENT:
                raise
            await self._check_store()
            return None
        self._is_known_to_exist = True
        modified = found.last_modified
        modified_at = (
            None if modified is None else int(modified.timestamp() * _US_PER_S)
        )
        return ObjectInfo(found.content_length, modified_at)

    async def _check_store(self) -> None:
        """Raise if the bucket does not exist: it looks like an absent object."""
        if self.supports_listing and not self._is_known_to_exist:
            await self._names("", "", 1)

    async def _names(self, prefix: str, after: str, count_max: int | None) -> list[str]:
        """Return names with *prefix*, in the order of the store."""
        options: dict[str, Any] = {"recursive": True}
        if after:
            options["start_after"] = after
        found: list[str] = []
        with self._translated_by_bucket():
            async for entry in await self._operator.list(prefix, **options):
                if len(found) == count_max:
                    break
                name: str = entry.path
                # Some programs store empty objects for directories.
                if name.startswith(prefix) and not name.endswith("/"):
                    found.append(name)
        self._is_known_to_exist = True
        return found

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate OpenDAL's errors."""
        try:
            check_not_forked()
            yield
        except self._errors as error:
            raise StoreFailed(failure_of(error, self._secrets)) from None

    @contextmanager
    def _translated_by_bucket(self) -> Iterator[None]:
        """Translate OpenDAL's errors of requests that need nothing but the bucket."""
        try:
            with self._translated():
                yield
        except StoreFailed as failed:
            if failed.kind is FailureKind.ABSENT and self._has_bucket:
                failure = StoreFailure(FailureKind.NO_STORE, failed.message)
                raise StoreFailed(failure) from None
            raise

    @contextmanager
    def _for_coroutines(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except (StoreFailed, ChildProcessError) as failed:
            raise ObjectsUnavailable(self._message(action, name, failed)) from None

    @contextmanager
    def _for_files(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except StoreFailed as failed:
            kinds: dict[FailureKind, type[OSError]] = {
                FailureKind.ABSENT: FileNotFoundError,
                FailureKind.REFUSED: PermissionError,
                FailureKind.TIMEOUT: TimeoutError,
            }
            kind = kinds.get(failed.kind, ConnectionError)
            raise kind(self._message(action, name, failed)) from None

    def _message(self, action: str, name: str, failed: Exception) -> str:
        return f"the object store {self._url}: {action} {name!r} failed: {failed}"


def _checked(name: str) -> str:
    """Return *name*, unless OpenDAL or the network would change it."""
    parts = name.split("/")
    if name != name.strip() or not {"", ".", ".."}.isdisjoint(parts) or "\0" in name:
        raise NotFound(f"{name!r} is not a valid name of an object")
    return name


def _check_names(
    address: StoreAddress, options: Mapping[str, str], config: Any
) -> None:
    """Raise if an option is unknown; OpenDAL ignores such options."""
    words = address.service.replace("-", " ").split()
    kind = getattr(config, "".join(map(str.capitalize, words)) + "Config", None)
    if kind is None:
        return
    known = set(kind.__annotations__) - {"scheme"}
    for name in options:
        if name not in known:
            raise InvalidConfig(
                f"the object store {address.url}: there is no option {name!r}"
                f"{did_you_mean(name, sorted(known))}; the options are "
                f"{', '.join(sorted(known))}"
            )
