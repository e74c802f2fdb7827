"""
Topics as an endless stream of micro-batches.

Spark calls ``StreamReader``; pure code in ``reader.query_positions``, ``batch_limits``
and ``reader.scans`` decides what to read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Set
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pydanube.model.errors import BrokerError
from pydanube_spark.pure import batch_limits
from pydanube_spark.pure.batch_limits import BatchThresholds
from pydanube_spark.reader import topics
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.pure import query_positions
from pydanube_spark.reader.pure.query_positions import Position, Positions, ReaderSchema
from pydanube_spark.reader.pure.read_options import ReadOptions
from pydanube_spark.reader.topics import Heads
from pydanube_spark.topic_reader import TopicReader

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.05
"""How long a stream that has nothing to read waits before it asks the broker again."""
LONG_IDLE_WAIT_S = 0.1
"""The same wait, if there was nothing to read when Spark asked the last time."""
IDLE_WAITS_MAX = 3
"""
How often a stream waits before it tells Spark that there is nothing to read.

Each answer to Spark costs as much as several requests to the broker.  A query that is
stopped ends only after the answer.
"""
NAMES_AGE_MAX_S = 1.0
"""How long a stream reads the same topics before it looks for new ones."""
NAMES_SHARE_MAX = 0.05
"""The most of its time that a stream looks for new topics; it then waits longer."""


class StreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """
    A stream read: topics as an endless stream of micro-batches.

    Spark's checkpoint stores the offset range ``start … end`` of every topic in a
    micro-batch.  The same range is read again after a crash, so only the sink decides
    whether results are written exactly once.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog] = Catalog,
        *,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        planned: ReaderSchema | None = None,
    ) -> None:
        super().__init__(options, schema, connect, planned)
        self._wait = wait
        self._clock = clock
        self._heads: Heads = {}
        """The latest known heads of the topics."""
        self._idle_at: Positions | None = None
        """A position after which the latest known heads have no messages."""
        self._names: Set[str] = frozenset()
        """The selected topics, as of at most NAMES_AGE_MAX_S ago."""
        self._names_expire_at = -math.inf
        self._target: Heads | None = None
        """Where Trigger.AvailableNow ends, if that is the trigger."""
        self._thresholds = BatchThresholds(
            options.trigger_rows_min or 1, options.trigger_delay_s
        )
        self._reported: dict[str, int] = {}
        self._revisions: Any = None
        """The revisions after which heads have changed; None: all heads are read."""
        self._parsed: tuple[dict[str, Any], Positions] = ({}, {})
        """The last positions that Spark passed, as JSON and parsed."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        options, catalog = self._options, self._catalog
        heads = self._heads = topics.require_heads(options, catalog)
        start = query_positions.resolve(
            options.starting,
            topics.readable_heads(options, heads),
            catalog.offset_at_time,
        )
        reader_schema = None if self._values is None else self._values.plan(heads)
        return query_positions.to_json(start, reader_schema)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """
        Return one of the limits that the options set.

        Spark cannot combine limits of several kinds, so this one stands for all.  All
        limits of the options apply unless Spark asks for everything.
        """
        if self._options.trigger_rows_max is not None:
            return ReadMaxRows(self._options.trigger_rows_max)
        if self._options.trigger_bytes_max is not None:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        if self._options.trigger_rows_min is not None:
            return ReadMinRows(self._options.trigger_rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store where the topics end now; the query ends when it has read so far."""
        self._names_expire_at = -math.inf
        self._target = topics.readable_heads(self._options, self._find_heads())

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """
        Return where the micro-batch that begins at *start* ends.

        Raises:
            OffsetDropped: Messages after *start* are gone, and failOnDataLoss is set.
            TopicNotFound: A topic is deleted, and failOnDataLoss is set.
        """
        begin = self._parse(start)
        # Spark passes the end of a batch as the start only after that batch is done,
        # and it calls this once more before Trigger.AvailableNow ends.  So, unlike
        # commit(), this call also reports the last batch.
        self._report(begin)
        was_idle = begin is self._idle_at
        end = self._advance(begin, limit)
        for _ in range(IDLE_WAITS_MAX):
            if end is not begin or self._target is not None:
                break
            self._wait(LONG_IDLE_WAIT_S if was_idle else IDLE_WAIT_S)
            end = self._advance(begin, limit)
        if end is begin or end == begin:
            # Equal positions must be equal text, or Spark runs an empty batch: a new
            # reader schema is recorded with the first messages that it is used for.
            return start
        reader_schema = recorded = query_positions.reader_schema_in(start)
        if self._values is not None:
            reader_schema = self._values.resume(end, recorded)
        return query_positions.to_json(end, reader_schema)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the latest known ends of the topics, from which lag is computed."""
        if not self._heads:
            return None
        return query_positions.to_json(
            {
                topic: Position(head.topic_id, head.end)
                for topic, head in self._heads.items()
            }
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """
        Return the scans of ``start … end``.

        They always give the same messages and the same values, because *end* contains
        the reader schema.
        """
        begin, stop = self._parse(start), query_positions.from_json(end)
        decoding = None
        if self._values is not None:
            reader_schema = self._values.repeat(
                stop, query_positions.reader_schema_in(end)
            )
            decoding = self._values.decoding(stop, reader_schema)
        return self._plan(begin, stop, self._heads, decoding)

    def commit(self, end: dict[str, Any]) -> None:
        """Report the progress to the broker."""
        self._report(query_positions.from_json(end))

    def _parse(self, value: dict[str, Any]) -> Positions:
        """Return positions; the same object while they stay the same."""
        known, positions = self._parsed
        if value != known:
            positions = query_positions.from_json(value)
            self._parsed = value, positions
        return positions

    def _find_heads(self) -> Heads:
        """Return the heads of the topics; the same object while they stay the same."""
        began = self._clock()
        if began >= self._names_expire_at:
            names = dict.fromkeys(topics.find_names(self._options, self._catalog))
            if names.keys() != self._names:
                self._names, self._revisions = names.keys(), None
            took_s = self._clock() - began
            age_s = max(NAMES_AGE_MAX_S, took_s / NAMES_SHARE_MAX)
            self._names_expire_at = began + age_s
        found = topics.find_changed_heads(
            self._options, self._catalog, self._names, self._revisions
        )
        self._revisions = found.revisions
        heads = found.heads
        if not found.is_complete:
            heads = {**self._heads, **found.heads} if found.heads else self._heads
        if heads is not self._heads and heads != self._heads:
            self._idle_at, self._heads = None, heads
        return self._heads

    def _advance(self, at: Positions, limit: ReadLimit) -> Positions:
        """Return the end of a micro-batch that begins *at*; *at* if none is due."""
        heads = self._find_heads()
        if at is self._idle_at:
            return at
        target = self._target
        if target is None:
            target = topics.readable_heads(self._options, heads)
        begin = query_positions.add_topics(at, target)
        # The checkpoint keeps the positions of topics that are no longer selected, in
        # case they are selected again.
        selected = {
            topic: position
            for topic, position in begin.items()
            if self._options.selects(topic)
        }
        lost = query_positions.find_losses(selected, heads)
        if self._options.fail_on_data_loss:
            query_positions.raise_losses(lost)
        # Losses are skipped here, and logged when the batch is planned.
        begin = query_positions.skip_losses(begin, lost)
        end = query_positions.advance(begin, target)
        waiting = batch_limits.count_between(begin, end)
        self._idle_at = None if waiting or begin != at else at
        # These triggers end when nothing is left; messages that wait would be skipped.
        is_last = self._target is not None or isinstance(limit, ReadAllAvailable)
        now = self._clock()
        if waiting and not (is_last or self._thresholds.is_due(waiting, now)):
            return at
        return at if end == at else self._limited(begin, end, limit)

    def _limited(self, begin: Positions, end: Positions, limit: ReadLimit) -> Positions:
        """Limit *end* by the options, unless Spark asks for everything."""
        if isinstance(limit, ReadAllAvailable):
            return end
        rows_max = self._options.trigger_rows_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        bytes_max = self._options.trigger_bytes_max
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        if rows_max is not None:
            end = query_positions.within_rows(begin, end, rows_max)
        if bytes_max is None:
            return end
        ranges = topics.find_ranges(
            self._options, self._catalog, begin, end, heads=self._heads
        )
        return batch_limits.within_bytes(begin, end, ranges, bytes_max)

    def _report(self, done: Positions) -> None:
        """Report progress to the broker; only its tools use it, so it may fail."""
        if self._options.subscription is None:
            return
        changed = {
            topic: position.offset
            for topic, position in done.items()
            if self._reported.get(topic) != position.offset
        }
        if not changed:
            return
        try:
            errors = self._catalog.report_positions(self._options.subscription, changed)
        except BrokerError as error:
            errors = dict.fromkeys(changed, error)
        for topic, reason in errors.items():
            log.warning("%s: progress was not reported: %s", topic, reason)
            del changed[topic]
        self._reported |= changed
