"""
The reader's requests to a broker: topics, segments, messages and schemas.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    Remedy,
    Unauthenticated,
)
from pydanube.model.positions import TIME_MAX, TIME_MIN, to_datetime
from pydanube.model.schemas import SchemaVersion, SubjectDescription
from pydanube_spark.reader.pure.query_positions import Head
from pydanube_spark.reader.pure.read_options import BROKER_RETRY_S, ReadOptions
from pydanube_spark.reader.pure.scans import TAIL_MESSAGE_BYTES, TopicRange

# Importing the client takes as long as everything else that a task needs, and tasks
# that read segments do not connect.
if TYPE_CHECKING:
    from pydanube.sync import Client

T = TypeVar("T")

log = logging.getLogger(__name__)

# Spark reuses and forks its Python workers, so each process opens its own connections.
# Closing waits for the client's thread, which no longer runs when modules are torn
# down, so atexit closes the connections before that.
_connections: dict[tuple[int, str, float | None], Client] = {}
_open = ExitStack()
atexit.register(_open.close)


def process_client(url: str, *, retry_s: float | None = None) -> Client:
    """
    Return this process's client of the broker at *url*; the first call connects.

    If *retry_s* is given, connecting and requests that may be repeated are tried for
    this number of seconds.

    Raises:
        ConnectionLost: The broker cannot be reached.
        InvalidRequest: The URL or a file of credentials cannot be read.
        Unauthenticated: The broker refuses the credentials.
    """
    key = os.getpid(), url, retry_s
    if key not in _connections:
        from pydanube import sync  # noqa: PLC0415

        try:
            if retry_s is None:
                connecting = sync.connect(url)
            else:
                connecting = sync.connect(url, wait_s=retry_s, retry_s=retry_s)
            _connections[key] = _open.enter_context(connecting)
        except (InvalidRequest, Unauthenticated) as error:
            pyspark = sys.modules.get("pyspark")
            if pyspark is None or pyspark.TaskContext.get() is None:
                raise
            # Each executor has files of its own, and Spark does not say where.
            host = socket.gethostname()
            raise type(error)(f"{error} (on the executor of {host})") from error
    return _connections[key]


class Layout(NamedTuple):
    """A topic's head, and the segments with messages of a range."""

    head: Head
    range: TopicRange


class ChangedHeads(NamedTuple):
    """The heads of topics that have changed, or of all that exist."""

    heads: dict[str, Head]
    revisions: Any
    """The revisions of brokers, from which the next answer continues."""
    is_complete: bool
    """Whether these are the heads of all topics."""


def _heads_of(
    found: Mapping[str, TopicOffsets], *, skips_non_reliable: bool
) -> dict[str, Head]:
    non_reliable = [name for name, each in found.items() if not each.is_reliable]
    if non_reliable and not skips_non_reliable:
        raise InvalidRequest(
            f"{non_reliable[0]} is non-reliable: its messages are not stored, so "
            "Spark cannot read them; read a reliable topic"
        )
    return {name: _head_of(each) for name, each in found.items() if each.is_reliable}


def _head_of(found: TopicOffsets) -> Head:
    tail = found.end_offset - found.sealed_offset
    return Head(
        found.topic_id,
        found.base_offset,
        found.end_offset,
        found.sealed_offset,
        max(1, found.tail_bytes // tail) if tail else TAIL_MESSAGE_BYTES,
    )


class Catalog:
    """
    The topics and schemas of the broker that options name, requested by the client.

    Creating a catalog does not connect, so it can be pickled into Spark's tasks.  Each
    process connects once, with its first request.  Requests that fail because the
    broker cannot be reached are repeated as often as the options allow, because one
    failure would end a streaming query.
    """

    def __init__(
        self,
        options: ReadOptions,
        *,
        connect: Callable[[str], Client] = process_client,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = options.url
        self._retries = options.retries
        self._retry_interval_s = options.retry_interval_s
        self._connect = connect
        self._wait = wait
        self._clock = clock

    def topics(self) -> list[str]:
        """Return the names of all topics and partitions, sorted."""
        return self._request(lambda client: sorted(client.topics.list()))

    def partitions(self, topic: str) -> list[str]:
        """
        Return the partitions of *topic*, or *topic* itself if it has none.

        The list is empty if the topic does not exist.
        """
        return self._request(lambda client: client.topics.partitions(topic))

    def heads(
        self, topics: Iterable[str], *, skips_non_reliable: bool = False
    ) -> dict[str, Head]:
        """
        Return which messages those of *topics* that exist have at the moment.

        Raises:
            InvalidRequest: A topic is non-reliable, and is not to be skipped.
        """
        names = dict.fromkeys(topics)
        found = self._request(lambda client: client.topics.list_offsets(names))
        return _heads_of(found, skips_non_reliable=skips_non_reliable)

    def changed_heads(
        self, topics: Set[str], since: Any = None, *, skips_non_reliable: bool
    ) -> ChangedHeads:
        """
        Return the heads of those of *topics* that have changed since the last answer.

        Brokers answer from what has changed, so it costs little if nothing has.

        Args:
            topics: The same ones in each call.
            since: The ``revisions`` of the last answer; None: there was none.
            skips_non_reliable: As for ``heads``.

        Raises:
            InvalidRequest: As for ``heads``.
        """
        found = self._request(
            lambda client: client.topics.list_changed_offsets(topics, since)
        )
        heads = _heads_of(found.topics, skips_non_reliable=skips_non_reliable)
        return ChangedHeads(heads, found.revisions, is_complete=found.is_complete)

    def offset_at_time(self, topic: str, time_us: int) -> int | None:
        """
        Return the first message that was published at *time_us* since 1970 or later.

        Raises:
            TopicNotFound: The topic does not exist.
        """
        time = to_datetime(max(TIME_MIN, min(time_us, TIME_MAX)))
        [found] = self._request(
            lambda client: client.topics.find_offsets(topic, [time])
        )
        return found

    def layouts(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Layout]:
        """
        Return the layouts of *ranges*, ``base … end`` by topic.

        Topics that do not exist are left out.
        """
        found = self._request(lambda client: client.storage.list_segments(ranges))
        return {
            topic: Layout(
                Head(
                    each.topic_id, each.base_offset, each.end_offset, each.sealed_offset
                ),
                TopicRange(topic, each.topic_id, *ranges[topic], each.segments),
            )
            for topic, each in found.items()
        }

    def read(self, topic: str, base: int, end: int) -> Iterator[pa.RecordBatch]:
        """
        Read the messages ``base … end``, in order, with all columns of a segment.

        Raises:
            OffsetDropped: Some of them are gone.
        """
        # A read that fails is repeated after the last batch that was yielded.
        position, attempts = base, self._attempts()
        while position < end:
            try:
                for batch in self._connect(self._url).read(
                    topic, start=position, end=end
                ):
                    yield batch.to_arrow()
                    position, attempts = batch.offsets[-1] + 1, self._attempts()
            except BrokerError as error:
                attempts.wait_after(error)
            else:
                return

    def report_positions(
        self, subscription: str, offsets: Mapping[str, int]
    ) -> dict[str, BrokerError]:
        """
        Report that *subscription* has processed all messages before *offsets*.

        Returns: The errors of those topics whose progress was not reported.
        """
        return self._request(
            lambda client: client.subscriptions.report_positions(subscription, offsets)
        )

    def subject_of(self, topic: str) -> str | None:
        """
        Return the schema subject that the topic is bound to, if any.

        Raises:
            TopicNotFound: The topic does not exist.
        """
        found = self._request(lambda client: client.schemas.topic_schema(topic))
        return None if found is None else found.subject

    def subject(self, subject: str) -> SubjectDescription:
        """
        Describe *subject* and its versions.

        Raises:
            SchemaNotFound: The subject does not exist.
        """
        return self._request(lambda client: client.schemas.describe(subject))

    def schema_version(self, subject: str, version: int) -> SchemaVersion:
        """
        Return one version of *subject*.

        Raises:
            SchemaNotFound: The version does not exist.
        """
        return self._request(lambda client: client.schemas.get(subject, version))

    def _request(self, send: Callable[[Client], T]) -> T:
        attempts = self._attempts()
        while True:
            try:
                return send(self._connect(self._url))
            except BrokerError as error:
                attempts.wait_after(error)

    def _attempts(self) -> _Attempts:
        return _Attempts(self._retries, self._retry_interval_s, self._wait, self._clock)


class _Attempts:
    """The attempts of one request."""

    def __init__(
        self,
        retries: int,
        interval_s: float,
        wait: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._left = self._retries = retries
        self._interval_s = interval_s
        self._wait = wait
        self._clock = clock
        # An attempt may take long, because the client retries by itself.
        self._seconds = max(BROKER_RETRY_S, retries * interval_s)
        self._give_up_at = clock() + self._seconds

    def wait_after(self, error: BrokerError) -> None:
        """Wait before the next attempt; raise *error* if there is none."""
        is_late = self._clock() >= self._give_up_at
        if error.remedy is Remedy.GIVE_UP or not self._left or is_late:
            raise error
        if self._left == self._retries and self._left > 1:
            log.warning("%s: retried for up to %.0f s", error, self._seconds)
        self._left -= 1
        self._wait(self._interval_s)
