"""The discovery of the tables that the patterns of mirrors stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydanube import sync
from pydanube.declarations.pure.problems import Path, Problems, listed
from pydanube.model.errors import BrokerError, ConnectionLost
from pydanube.model.names import TopicName
from pydanube_spark.pipelines.broker_checks import (
    Connect,
    refuse_unanswered,
    unanswered_text,
)
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.pure.mirrors import ANY, TABLE, tables_among
from pydanube_spark.pipelines.pure.spec import Mirror
from pydanube_spark.pipelines.state import StateDirectory


def discover_tables(
    pipeline: Pipeline, connect: Connect = sync.connect
) -> dict[str, list[str]]:
    """
    Return the tables that the patterns of each mirror of *pipeline* stand for now.

    Raises:
        InvalidDeclaration: A mirror has no table, or more than it may.
        NoBrokerAnswers: A broker does not answer; nothing else is wrong.
    """
    problems = Problems(pipeline.document.line_of)
    unanswered = 0
    found: dict[str, list[str]] = {}
    for name, mirror in pipeline.spec.mirrors.items():
        path: Path = ("mirrors", name)
        url = mirror.broker or pipeline.broker
        namespace = TopicName.parse(mirror.topic.replace(TABLE, "t")).namespace
        try:
            with connect(url) as client:
                tables = tables_among(mirror, client.topics.list(str(namespace)))
        except ConnectionLost as error:
            unanswered += 1
            place = (*path, "broker") if mirror.broker else path
            problems.add(place, unanswered_text(url, error))
        except BrokerError as error:
            problems.add(path, f"the broker at {url} says: {error}")
        else:
            found[name] = tables
            _check_count(mirror, tables, url, path, problems)
    refuse_unanswered(pipeline, problems, unanswered)
    return found


def remember_tables(
    state: StateDirectory, found: Mapping[str, Sequence[str]]
) -> list[str]:
    """Store the tables *found* in *state*, and return what has changed for people."""
    known = state.read_mirrored_tables()
    notes = []
    for name, tables in found.items():
        before = known.get(name, ())
        new = [each for each in tables if each not in before]
        gone = [each for each in before if each not in tables]
        if new:
            notes.append(f"{name} has new tables: {', '.join(new)}")
        if gone:
            notes.append(
                f"{name} has no topics of these tables any more, which stay as they "
                f"are: {', '.join(gone)}"
            )
    state.write_mirrored_tables(found)
    return notes


def _check_count(
    mirror: Mirror, tables: list[str], url: str, path: Path, problems: Problems
) -> None:
    patterns = [each for each in mirror.tables if ANY in each]
    if not tables and len(patterns) == len(mirror.tables):
        problems.add(
            (*path, "tables"),
            f"no topic at {url} is {mirror.topic} with a table of the name "
            f"{listed(patterns)}",
        )
    if len(tables) > mirror.tables_max:
        problems.add(
            (*path, "tables"),
            f"{len(tables)} tables have these names, and tables_max is "
            f"{mirror.tables_max}; set it, or narrow the patterns with 'exclude'",
        )
