"""The discovery of the tables that the patterns of mirrors stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydanube import sync
from pydanube.declarations.pure.problems import Path, Problems, listed
from pydanube.model.errors import BrokerError, ConnectionLost
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube_spark.pipelines.broker_checks import (
    Connect,
    refuse_unanswered,
    unanswered_text,
)
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.pure.mirrors import ANY, TABLE, tables_among
from pydanube_spark.pipelines.pure.spec import Mirror
from pydanube_spark.pipelines.state import StateDirectory


@dataclass(frozen=True, slots=True)
class DiscoveredTables:
    """The tables that the patterns of mirrors stand for."""

    tables: dict[str, list[str]] = field(default_factory=dict)
    """Those of each mirror, by its name."""
    hidden: dict[str, dict[str, str]] = field(default_factory=dict)
    """
    Tables of earlier runs whose topics the pipeline may not see any more, by mirror,
    with the permission that it lacks.
    """


def discover_tables(
    pipeline: Pipeline, connect: Connect = sync.connect
) -> DiscoveredTables:
    """
    Return the tables that the patterns of each mirror of *pipeline* stand for now.

    A broker lists only topics that the pipeline may see, so it is asked why those of
    earlier runs are missing.

    Raises:
        InvalidDeclaration: A mirror has no table, or more than it may.
        NoBrokerAnswers: A broker does not answer; nothing else is wrong.
    """
    problems = Problems(pipeline.document.line_of)
    unanswered = 0
    found = DiscoveredTables()
    known = pipeline.state.read_mirrored_tables()
    for name, mirror in pipeline.spec.mirrors.items():
        path: Path = ("mirrors", name)
        url = mirror.broker or pipeline.broker
        namespace = TopicName.parse(mirror.topic.replace(TABLE, "t")).namespace
        try:
            with connect(url) as client:
                tables = tables_among(mirror, client.topics.list(str(namespace)))
                gone = set(known.get(name, ())).difference(tables)
                hidden = _hidden(client, mirror, gone)
                # A first run knows no table: any name shows what it may see.
                lacks = None if tables else _lacking(client, mirror, "t")
        except ConnectionLost as error:
            unanswered += 1
            place = (*path, "broker") if mirror.broker else path
            problems.add(place, unanswered_text(url, error))
        except BrokerError as error:
            problems.add(path, f"the broker at {url} says: {error}")
        else:
            found.tables[name], found.hidden[name] = tables, hidden
            lacks = next(iter(hidden.values()), lacks)
            for each in _count_problems(mirror, tables, url, lacks):
                problems.add((*path, "tables"), each)
    refuse_unanswered(pipeline, problems, unanswered)
    return found


def remember_tables(state: StateDirectory, found: DiscoveredTables) -> list[str]:
    """Store the tables *found* in *state*, and return what has changed for people."""
    known = state.read_mirrored_tables()
    notes = []
    for name, tables in found.tables.items():
        before, hidden = known.get(name, ()), found.hidden.get(name, {})
        new = [each for each in tables if each not in before]
        gone = [each for each in before if each not in {*tables, *hidden}]
        if new:
            notes.append(f"{name} has new tables: {', '.join(new)}")
        if gone:
            notes.append(
                f"{name} has no topics of these tables any more, which stay as they "
                f"are: {', '.join(gone)}"
            )
        if hidden:
            notes.append(
                f"{name} may not see the topics of these tables any more, which stay "
                f"as they are: {', '.join(hidden)} ({next(iter(hidden.values()))})"
            )
    state.write_mirrored_tables(found.tables)
    return notes


def _hidden(client: Any, mirror: Mirror, gone: Iterable[str]) -> dict[str, str]:
    """Return the tables among *gone* that *client* may not see, with what it lacks."""
    topics = [mirror.topic.replace(TABLE, each) for each in gone]
    lacking = {
        each: _lacking(client, mirror, each) for each in tables_among(mirror, topics)
    }
    return {table: lacks for table, lacks in lacking.items() if lacks is not None}


def _lacking(client: Any, mirror: Mirror, table: str) -> str | None:
    """Return why *client* may not see the topic of *table*; None: it may."""
    topic = mirror.topic.replace(TABLE, table)
    decision = client.security.check_access(Permission.DESCRIBE.value, topic)
    return None if decision.allowed else str(decision.rule)


def _count_problems(
    mirror: Mirror, tables: Sequence[str], url: str, lacks: str | None
) -> Iterator[str]:
    """Yield why *mirror* cannot have *tables*; *lacks* says why it may see none."""
    patterns = [each for each in mirror.tables if ANY in each]
    if not tables and len(patterns) == len(mirror.tables):
        unseen = f", or none that may be seen: {lacks}" if lacks else ""
        yield (
            f"no topic at {url} is {mirror.topic} with a table of the name "
            f"{listed(patterns)}{unseen}"
        )
    if len(tables) > mirror.tables_max:
        yield (
            f"{len(tables)} tables have these names, and tables_max is "
            f"{mirror.tables_max}; set it, or narrow the patterns with 'exclude'"
        )
