"""
The lag of a pipeline at the broker: the progress of its queries as a subscription.

The broker's tools and metrics then show how far the pipeline lags behind, as that of
any consumer.  Spark's checkpoints alone decide what is read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

from pydanube import sync
from pydanube.model.errors import BrokerError
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.pure.progress import QueryProgress, QueryState
from pydanube_spark.reader.pure.read_options import ReadOptions

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""How often progress is reported at most."""
END_WAIT_S = 5.0
"""How long the end of a run waits for its last report."""

Connect = Callable[[str], AbstractContextManager[Any]]


def subscription_of(pipeline: str) -> str:
    """Return the name of the subscription that shows the lag of *pipeline*."""
    return f"pipeline-{pipeline}"


def slowest_positions(queries: Iterable[QueryProgress]) -> dict[str, int]:
    """
    Return the offsets that all streaming *queries* have reached, by topic or partition.

    There are none until each query has reported, because the slowest counts: a topic
    may drop messages that all its subscriptions have processed.
    """
    found: dict[str, int] = {}
    for query in queries:
        if not query.has_reported and query.state is not QueryState.DONE:
            return {}
        for topic, offset in query.positions.items():
            found[topic] = min(offset, found.get(topic, offset))
    return found


class ProgressReporter:
    """
    Reports positions to the brokers, in a thread while it is entered.

    Reports may fail: nothing but what people see depends on them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        connect: Connect = sync.connect,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """Prepare to report; sources with their own subscription are left out."""
        self._subscription = subscription_of(pipeline.name)
        self._sources = _reported_sources(pipeline)
        self._connect = connect
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._wanted: dict[str, int] = {}
        self._is_new = False
        self._is_closing = False
        self._warned: set[tuple[str, str]] = set()
        self._thread = threading.Thread(
            target=self._run, name="progress reports", daemon=True
        )

    def __enter__(self) -> ProgressReporter:
        if self._sources:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send the last report, and wait for it for at most END_WAIT_S."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._sources:
            self._thread.join(END_WAIT_S)

    def update(self, positions: dict[str, int]) -> None:
        """Report *positions* soon; this does not wait."""
        if positions != self._wanted:
            with self._changed:
                self._wanted, self._is_new = positions, True
                self._changed.notify()

    def _run(self) -> None:
        with ExitStack() as connections:
            clients: dict[str, Any] = {}
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing or self._is_new)
                    is_last, positions = self._is_closing, self._wanted
                    self._is_new = False
                self._report(positions, clients, connections)
                if is_last:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, self._interval_s)

    def _report(
        self, positions: dict[str, int], clients: dict[str, Any], stack: ExitStack
    ) -> None:
        for source in self._sources:
            own = {
                topic: offset
                for topic, offset in positions.items()
                if source.selects(topic)
            }
            if not own:
                continue
            try:
                if source.url not in clients:
                    opened = stack.enter_context(self._connect(source.url))
                    clients[source.url] = opened
                errors = clients[source.url].subscriptions.report_positions(
                    self._subscription, own
                )
            except BrokerError as error:
                errors = dict.fromkeys(own, error)
            for topic, reason in errors.items():
                self._warn(topic, reason)

    def _warn(self, topic: str, reason: BrokerError) -> None:
        """Log *reason*, once for each topic and kind of error."""
        key = topic, reason.code
        if key not in self._warned:
            self._warned.add(key)
            log.warning(
                "%s: the broker does not show the lag of this pipeline: %s",
                topic,
                reason,
            )


def _reported_sources(pipeline: Pipeline) -> list[ReadOptions]:
    if not pipeline.spec.report_progress:
        return []
    streams = [
        topic_options(source, pipeline.broker)
        for source in pipeline.spec.sources.values()
        if source.is_topic and source.is_stream
    ]
    return [each for each in streams if each.subscription is None]
