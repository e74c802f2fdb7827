"""The checks of a pipeline that need its brokers, but not Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

from pydanube import sync
from pydanube.declarations.pure.problems import (
    InvalidDeclaration,
    Path,
    Problems,
    listed,
)
from pydanube.model.errors import BrokerError, ConnectionLost
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.pipelines.graph import DEAD_LETTERS, QUARANTINE
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import sink_options, topic_options
from pydanube_spark.pipelines.pure.spec import Sink, Source, Truncate
from pydanube_spark.pure.write_options import parse_write_options


class NoBrokerAnswers(InvalidDeclaration):
    """Brokers do not answer, which may change; otherwise the pipeline is valid."""

    code = "no_broker_answers"


Connect = Callable[[str], AbstractContextManager[Any]]
"""Connects to the broker at a URL, such as ``sync.connect``."""


def check_brokers(pipeline: Pipeline, connect: Connect = sync.connect) -> None:
    """
    Check that the brokers of *pipeline* answer, and have the topics of its sources.

    On return all connections are closed.

    Raises:
        InvalidDeclaration: They do not; the error has all problems.
        NoBrokerAnswers: Nothing else is wrong.
    """
    problems = Problems(pipeline.document.line_of)
    with BrokerChecks(pipeline, problems, connect) as checks:
        checks.unusable_sources()
        checks.check_sinks()
    refuse_unanswered(pipeline, problems, checks.unanswered)


def refuse_unanswered(pipeline: Pipeline, problems: Problems, unanswered: int) -> None:
    """
    Raise if there are *problems*, of which *unanswered* are brokers without answer.

    Raises:
        InvalidDeclaration: There are others.
        NoBrokerAnswers: There are only these.
    """
    try:
        problems.refuse(pipeline.file, pipeline.redact)
    except InvalidDeclaration as invalid:
        if len(invalid.problems) > unanswered:
            raise
        raise NoBrokerAnswers(invalid.file, invalid.problems) from None


def unanswered_text(url: str, error: ConnectionLost) -> str:
    """Return the problem that no broker answers at *url*."""
    return (
        f"no broker answers at {url} ({error}); start it, or set another one with "
        "'broker' in the file or the variable DANUBE_URL"
    )


class BrokerChecks:
    """
    The checks of one pipeline, which report its problems; a context manager.

    It connects to each broker once, because a mirror has hundreds of sources.
    """

    def __init__(
        self, pipeline: Pipeline, problems: Problems, connect: Connect = sync.connect
    ) -> None:
        self._pipeline = pipeline
        self._problems = problems
        self._connect = connect
        self._open = ExitStack()
        self._clients: dict[str, Any] = {}
        """The client of each broker by URL, or the error of the connection."""
        self.unanswered = 0
        """The number of problems that are brokers that do not answer."""

    def __enter__(self) -> BrokerChecks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def unusable_sources(self) -> set[str]:
        """Return the sources whose topics cannot be read."""
        sources = self._pipeline.spec.sources
        return {
            name
            for name, source in sources.items()
            if source.is_topic and not self._has_topics(name, source)
        }

    def check_sinks(self) -> None:
        """Check that the brokers of sinks and of dead letters answer."""
        pipeline = self._pipeline
        for path, sink in _topic_sinks(pipeline):
            options = sink_options(sink, pipeline.broker, pipeline.directory)
            try:
                url = parse_write_options(options).url
            except BrokerError as error:
                self._problems.add(path, str(error))
            else:
                self._find_partitions(path, sink, url, ())

    def _has_topics(self, name: str, source: Source) -> bool:
        path = ("sources", name)
        options = topic_options(source, self._pipeline.broker)
        found = self._find_partitions(path, source, options.url, options.topics)
        if found is None:
            return False
        counts, known = found
        if source.truncate is Truncate.APPLY:
            self._check_truncations(path, counts)
        missing = [topic for topic, count in counts.items() if not count]
        if missing:
            word = next(iter(source.topic_fields), "options")
            near = did_you_mean(missing[0], known) or "."
            self._problems.add(
                (*path, word),
                f"there is no topic {listed(missing)} at {options.url}{near} "
                f"'danube topics create {missing[0]}' creates it",
            )
        return not missing

    def _check_truncations(self, path: Path, counts: Mapping[str, int]) -> None:
        """Report topics whose number of partitions, in *counts*, is more than one."""
        for topic, count in counts.items():
            if count > 1:
                self._problems.add(
                    (*path, "truncate"),
                    f"{topic} has {count} partitions, and a truncation in one has no "
                    "order with the changes in the others: use a topic with one "
                    "partition, or set truncate: ignore",
                )

    def _find_partitions(
        self, path: Path, part: Source | Sink, url: str, topics: Sequence[str]
    ) -> tuple[dict[str, int], list[str]] | None:
        """
        Return how many partitions each of *topics* has at *url*; 0 if it is missing.

        If one is missing, also return all topics of the broker.  If the broker does not
        answer, report the problem of *part* and return None.
        """
        try:
            client = self._client(url)
            counts = {each: len(client.topics.partitions(each)) for each in topics}
            return counts, [] if all(counts.values()) else client.topics.list()
        except ConnectionLost as error:
            self.unanswered += 1
            self._problems.add(
                (*path, "broker") if part.broker else path,
                unanswered_text(url, error),
            )
        except BrokerError as error:
            self._problems.add(path, f"the broker at {url} says: {error}")
        return None

    def _client(self, url: str) -> Any:
        """Return the client of the broker at *url*, or raise why there is none."""
        if url not in self._clients:
            try:
                found = self._open.enter_context(self._connect(url))
            except BrokerError as error:
                found = error
            self._clients[url] = found
        found = self._clients[url]
        if isinstance(found, BrokerError):
            # The error is raised again for each part of the pipeline.
            raise found.with_traceback(None)
        return found


def _topic_sinks(pipeline: Pipeline) -> list[tuple[Path, Sink]]:
    sinks: list[tuple[Path, Sink]] = [
        (("sinks", name), sink) for name, sink in pipeline.spec.sinks.items()
    ]
    sinks += [
        (("sources", name, DEAD_LETTERS), source.dead_letters)
        for name, source in pipeline.spec.sources.items()
        if source.dead_letters is not None
    ]
    sinks += [
        (("steps", name, QUARANTINE), step.quarantine)
        for name, step in pipeline.spec.steps.items()
        if step.quarantine is not None
    ]
    return [(path, sink) for path, sink in sinks if sink.format_name == "danube"]
