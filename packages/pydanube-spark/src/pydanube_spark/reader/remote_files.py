"""
Remote segments as files, whose ranges are requested ahead and several at a time.

Arrow reads one column chunk after the other, and would wait for the store each time.
So callers first say which ranges they are going to read, in order.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import lru_cache

import pyarrow as pa

from pydanube.model.descriptions import Segment
from pydanube.objects.addresses import locating_options
from pydanube.objects.loop_thread import loop_thread
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_ranges import RangeFile, Span, footer_span

REQUESTS_MAX = 8
"""The most requests of one file that are under way at the same time."""

AHEAD_BYTES_MAX = 32 * 1024 * 1024
"""The most bytes that are requested before they are read, or one range."""

_GAP_BYTES_MAX = 64 * 1024
_RANGE_BYTES_MAX = 8 * 1024 * 1024


def join_spans(
    spans: Iterable[Span],
    *,
    gap_max: int = _GAP_BYTES_MAX,
    bytes_max: int = _RANGE_BYTES_MAX,
) -> list[Span]:
    """
    Join neighbouring *spans*, so that fewer requests read them.

    Up to *gap_max* bytes that nobody needs are read between two spans, and a joined one
    has at most *bytes_max*.  *spans* are in the order in which they are read.
    """
    joined: list[Span] = []
    for begin, end in spans:
        if joined:
            first, last = joined[-1]
            if last <= begin <= last + gap_max and end - first <= bytes_max:
                joined[-1] = first, end
                continue
        joined.append((begin, end))
    return joined


class RemoteFile:
    """
    A remote segment that is read in ranges, without asking for its size.

    Bounds: At most ``REQUESTS_MAX`` requests are under way, and *ahead_bytes_max*
        bytes are read ahead, or one range.

    Threads: Only one thread may use it.
    """

    def __init__(
        self,
        objects: Objects,
        segment: Segment,
        *,
        ahead_bytes_max: int = AHEAD_BYTES_MAX,
    ) -> None:
        """
        Request the end of the segment, which has the footer.

        Raises:
            FileNotFoundError: The object does not exist.
            ObjectsUnavailable: The store does not answer, or refuses.
        """
        self.closed = False
        self._ahead_bytes_max = ahead_bytes_max
        self._objects = objects
        self._name = segment.object_name
        self._url = segment.remote_url
        self._size = segment.byte_count
        self._position = 0
        self._planned: deque[Span] = deque()
        self._fetching: deque[tuple[Span, Future[Buffer]]] = deque()
        self._fetching_bytes = 0
        span = footer_span(segment)
        end = loop_thread().run(self._fetch(span))
        self._end = RangeFile(span[0], end, self._size)
        self._current: RangeFile = self._end

    def expect(self, spans: Sequence[Span]) -> None:
        """Request *spans* ahead, which will be read in this order."""
        # Those in the end of the file are there already.
        joined = join_spans(spans)
        self._planned = deque(each for each in joined if not self._end.has(*each))
        self._drop_requests()
        self._request()

    def size(self) -> int:
        """Return the length of the file, which the manifest knows."""
        return self._size

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_CUR: self._position, io.SEEK_END: self._size}.get(whence, 0)
        self._position = begin + position
        return self._position

    def tell(self) -> int:
        return self._position

    def read_buffer(self, byte_count: int) -> pa.Buffer:
        """Return the next *byte_count* bytes, or fewer at the end of the file."""
        begin = self._position
        end = min(begin + byte_count, self._size)
        if begin >= end:
            return pa.py_buffer(b"")
        self._position = end
        file = self._find((begin, end))
        file.seek(begin)
        return file.read_buffer(end - begin)

    def read(self, byte_count: int = -1) -> bytes:
        left = self._size - self._position
        data: bytes = self.read_buffer(
            left if byte_count < 0 else byte_count
        ).to_pybytes()
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        self._planned.clear()
        self._drop_requests()

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, span: Span) -> RangeFile:
        """Return a file that has the bytes of *span*."""
        for file in (self._current, self._end):
            if file.has(*span):
                return file
        while self._fetching:
            (begin, end), fetching = self._fetching.popleft()
            self._fetching_bytes -= end - begin
            if not begin <= span[0] < span[1] <= end:
                # Arrow did not need it.
                continue
            data = fetching.result()
            self._request()
            self._current = RangeFile(begin, data, self._size)
            return self._current
        data = loop_thread().run(self._fetch(span))
        self._current = RangeFile(span[0], data, self._size)
        return self._current

    def _request(self) -> None:
        """Request more of what is planned."""
        while self._planned and len(self._fetching) < REQUESTS_MAX:
            begin, end = self._planned[0]
            size = end - begin
            if self._fetching and self._fetching_bytes + size > self._ahead_bytes_max:
                return
            span = self._planned.popleft()
            fetching = loop_thread().start(self._fetch(span))
            self._fetching.append((span, fetching))
            self._fetching_bytes += size

    def _drop_requests(self) -> None:
        for _, fetching in self._fetching:
            fetching.cancel()
        self._fetching.clear()
        self._fetching_bytes = 0

    async def _fetch(self, span: Span) -> Buffer:
        data = await self._objects.read(self._name, *span)
        if data is None:
            raise FileNotFoundError(f"{self._url} does not exist")
        if len(memoryview(data).cast("B")) != span[1] - span[0]:
            raise ValueError(f"{self._url} ends before byte {span[1]}")
        return data


def open_remote(segment: Segment) -> RemoteFile:
    """
    Open the remote copy of *segment*, with the credentials that this process finds.

    The broker says where the store is.  No other option that it sends is used, so that
    a broker cannot have files of this machine read.

    Raises:
        FileNotFoundError: The object does not exist.
        ObjectsUnavailable: The store does not answer, or refuses.
        MissingExtra: The packages for remote stores are not installed.
        InvalidConfig: The options of the store are not valid here.
    """
    root = segment.remote_url.removesuffix(f"/{segment.object_name}")
    options = tuple(sorted(locating_options(segment.store_options).items()))
    return RemoteFile(_store_at(os.getpid(), root, options), segment)


@lru_cache(16)
def _store_at(
    _process: int, root: str, options: tuple[tuple[str, str], ...]
) -> Objects:
    """Open the store at *root*; each process keeps its connections."""
    # No event loop waits for the interpreter lock here.
    return open_objects(root, dict(options), request_bytes_max=_RANGE_BYTES_MAX)
