"""
The choice between reading segments directly and through the broker.

Each task finds out whether it can read the files of segments.  The driver tries, too,
because its log is the one that people read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

from pydanube.model.descriptions import Segment
from pydanube_spark.reader.pure.read_options import ReadThrough
from pydanube_spark.reader.pure.scans import TopicRange
from pydanube_spark.reader.segment_files import NoAccess, open_file_of

RETRY_S = 60.0
"""How long a process does not try again to read the files of a store."""

_QUERIES_MAX = 1000

log = logging.getLogger(__name__)

# When to try again, by the query and the root of the store, and what was warned about.
_denied: dict[tuple[str, str], float] = {}
_warned: dict[str, None] = {}


@dataclass(slots=True)
class SegmentAccess:
    """How a query reads segments; it is pickled into tasks."""

    mode: ReadThrough = ReadThrough.AUTO
    query: str = field(default_factory=lambda: uuid4().hex)
    """A random name, so that a process warns once in each query."""
    is_checked: bool = False

    def check(self, ranges: Iterable[TopicRange]) -> None:
        """Warn if this process, the driver, cannot read a segment of *ranges*."""
        segments = [each.segments[-1] for each in ranges if each.segments]
        if self.is_checked or self.mode is not ReadThrough.AUTO or not segments:
            return
        self.is_checked = True
        try:
            open_file_of(segments[0]).close()
        except (FileNotFoundError, NoAccess) as error:
            self.warn(segments[0], error)

    def reads_directly(self, segments: Iterable[Segment]) -> bool:
        """Return whether to try to read *segments* directly."""
        if self.mode is not ReadThrough.AUTO:
            return self.mode is ReadThrough.NEVER
        now = time.monotonic()
        return all(
            now >= _denied.get((self.query, _root_of(each)), 0.0) for each in segments
        )

    def deny(self, segment: Segment, error: Exception) -> None:
        """Read segments of the same store through the broker for a while."""
        if len(_denied) >= _QUERIES_MAX:
            _denied.clear()
        _denied[self.query, _root_of(segment)] = time.monotonic() + RETRY_S
        self.warn(segment, error)

    def warn(self, segment: Segment, error: Exception) -> None:
        """Say, once for each query, that segments are read through the broker."""
        if self.query in _warned:
            return
        if len(_warned) >= _QUERIES_MAX:
            _warned.clear()
        _warned[self.query] = None
        log.warning(
            "segments are read through the broker, because this process has no access "
            "to %s: %s. %s, or set readThrough to always if this is intended",
            segment.remote_url or segment.url,
            error,
            remedy_of(segment),
        )


def remedy_of(segment: Segment) -> str:
    """Return what makes *segment* readable."""
    if segment.remote_url:
        return (
            "Install pydanube[objects] on the driver and all executors, and give them "
            "credentials for reading the object store"
        )
    return (
        "Mount the broker's directory at the same path on the driver and all "
        "executors, or let the broker upload segments to an object store"
    )


def _root_of(segment: Segment) -> str:
    url = segment.remote_url or segment.url
    return url.removesuffix(segment.object_name)
