"""
What reading needs to know of a broker: which topics there are, what they
consist of, their messages, and the schemas of those.

``Catalog`` is that need; ``BrokerCatalog`` meets it through the client.
"""

from __future__ import annotations

import atexit
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydanube.model.errors import BrokerError, InvalidRequest, Remedy
from pydanube.model.positions import to_datetime
from pydanube.reader.offsets import Head
from pydanube.reader.scans import TAIL_MESSAGE_BYTES, SegmentFile, TopicRange
from pydanube.reader.segment_files import facts_of
from pydanube.wire.batches import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pydanube.client.sync import Client
    from pydanube.model.schemas import SchemaVersion, SubjectDescription
    from pydanube.reader.read_options import ReadOptions

T = TypeVar("T")


class Catalog(Protocol):
    """The topics of a broker, as a reader sees them."""

    def topics(self) -> list[str]:
        """The names of all topics and partitions, sorted."""
        ...

    def partitions(self, topic: str) -> list[str]:
        """
        The partitions of *topic*; itself if it has none; nothing if it is not there.
        """
        ...

    def head(self, topic: str) -> Head:
        """
        Which messages the topic has at the moment.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It does not store its messages.
        """
        ...

    def find_time(self, topic: str, time_us: int) -> int | None:
        """
        The first message that was published at *time_us* since 1970 or later.

        Raises:
            TopicNotFound: There is no such topic.
        """
        ...

    def layout(self, topic: str, base: int, end: int) -> tuple[Head, TopicRange]:
        """The topic's head, and the segments that hold some of ``base … end``."""
        ...

    def read(self, topic: str, base: int, end: int) -> Iterator[pa.RecordBatch]:
        """
        Messages ``base … end``, in order, with all columns of a segment.

        Raises:
            OffsetDropped: Some of them are gone.
        """
        ...

    def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """Let the broker's tools show that everything below *offset* is done."""
        ...

    def subject_of(self, topic: str) -> str | None:
        """
        The schema subject that the topic is bound to, if it is to one.

        Raises:
            TopicNotFound: There is no such topic.
        """
        ...

    def subject(self, subject: str) -> SubjectDescription:
        """
        Which versions *subject* has.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        ...

    def schema_version(self, subject: str, version: int) -> SchemaVersion:
        """
        One version of *subject*.

        Raises:
            SchemaNotFound: There is none.
        """
        ...


# Spark reuses its Python workers, and forks them: a connection belongs to the
# process that opened it, and ends with it.  Closing waits for the client's thread,
# which is not there any more when modules are taken down, so it is done before.
_connections: dict[tuple[int, str], Client] = {}
_open = ExitStack()
atexit.register(_open.close)


def process_client(url: str) -> Client:
    """
    This process's client of the broker at *url*, connected when first asked for.

    Raises:
        ConnectionLost: Nobody answers there.
    """
    key = os.getpid(), url
    if key not in _connections:
        from pydanube.client import sync  # noqa: PLC0415  # Planning needs none.

        _connections[key] = _open.enter_context(sync.connect(url))
    return _connections[key]


class BrokerCatalog:
    """
    A broker's topics, asked for through the client.

    Making one costs nothing and connects to nobody, so that it can be pickled
    into Spark's tasks; each process connects once, when it first asks.  A
    request that fails because the broker cannot be reached is repeated as often
    as the options say, since one failure would end a streaming query.
    """

    def __init__(
        self,
        url: str,
        *,
        retries: int,
        retry_interval_s: float,
        connect: Callable[[str], Client] = process_client,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._retries = retries
        self._retry_interval_s = retry_interval_s
        self._connect = connect
        self._wait = wait

    def topics(self) -> list[str]:
        return self._ask(lambda client: sorted(client.topics()))

    def partitions(self, topic: str) -> list[str]:
        return self._ask(lambda client: client.partitions(topic))

    def head(self, topic: str) -> Head:
        found = self._ask(lambda client: client.describe_topic(topic))
        if not found.policy.is_reliable:
            raise InvalidRequest(
                f"{topic} is non-reliable: its messages are not stored, so Spark "
                "cannot read them"
            )
        tail = found.end_offset - found.sealed_offset
        return Head(
            found.topic_id,
            found.base_offset,
            found.end_offset,
            found.sealed_offset,
            max(1, found.tail_bytes // tail) if tail else TAIL_MESSAGE_BYTES,
        )

    def find_time(self, topic: str, time_us: int) -> int | None:
        time = to_datetime(max(TIME_MIN, min(time_us, TIME_MAX)))
        [found] = self._ask(lambda client: client.find_offsets(topic, [time]))
        return found

    def layout(self, topic: str, base: int, end: int) -> tuple[Head, TopicRange]:
        found = self._ask(lambda client: client.segments(topic, base, end))
        files = tuple(
            SegmentFile(
                each.base,
                each.end,
                each.byte_count,
                each.url,
                each.count,
                facts_of(each),
            )
            for each in found.segments
        )
        head = Head(
            found.topic_id, found.base_offset, found.end_offset, found.sealed_offset
        )
        return head, TopicRange(topic, found.topic_id, base, end, files)

    def read(self, topic: str, base: int, end: int) -> Iterator[pa.RecordBatch]:
        # Repeated from where it broke, and not after the first message of a batch
        # has been handed out: a batch comes as a whole or not at all.
        position, left = base, self._retries
        while position < end:
            try:
                for batch in self._connect(self._url).read(
                    topic, start=position, end=end
                ):
                    yield batch.to_arrow()
                    position, left = batch.offsets[-1] + 1, self._retries
            except BrokerError as error:
                if error.remedy is Remedy.GIVE_UP or not left:
                    raise
                left -= 1
            else:
                return
            self._wait(self._retry_interval_s)

    def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        self._ask(lambda client: client.report_progress(topic, subscription, offset))

    def subject_of(self, topic: str) -> str | None:
        found = self._ask(lambda client: client.schemas.topic_schema(topic))
        return None if found is None else found.subject

    def subject(self, subject: str) -> SubjectDescription:
        return self._ask(lambda client: client.schemas.describe(subject))

    def schema_version(self, subject: str, version: int) -> SchemaVersion:
        return self._ask(lambda client: client.schemas.get(subject, version))

    def _ask(self, question: Callable[[Client], T]) -> T:
        left = self._retries
        while True:
            try:
                return question(self._connect(self._url))
            except BrokerError as error:
                if error.remedy is Remedy.GIVE_UP or not left:
                    raise
                left -= 1
            self._wait(self._retry_interval_s)


def broker_catalog(options: ReadOptions) -> Catalog:
    """The catalog of the broker that *options* name."""
    return BrokerCatalog(
        options.url,
        retries=options.retries,
        retry_interval_s=options.retry_interval_s,
    )
