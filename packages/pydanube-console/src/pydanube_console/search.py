"""The search of the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pydanube.model.errors import BrokerError
from pydanube.model.subscription_lag import base_of
from pydanube_console.programs import visible_connectors, visible_pipelines
from pydanube_console.pure.markup import address
from pydanube_console.sessions import Session

RESULTS_MAX = 12

PAGES = (
    ("Overview", "/"),
    ("Topics", "/topics"),
    ("Messages", "/messages"),
    ("Dead letters", "/dead-letters"),
    ("Schemas", "/schemas"),
    ("Connectors", "/connectors"),
    ("Pipelines", "/pipelines"),
    ("Namespaces", "/namespaces"),
    ("Cluster", "/cluster"),
    ("Connections", "/connections"),
    ("Definitions", "/definitions"),
    ("Security", "/security"),
    ("Audit log", "/audit"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Something that the search has found."""

    text: str
    kind: str
    href: str


async def find(session: Session, text: str) -> list[Result]:
    """Return what has *text* in its name, at most ``RESULTS_MAX``."""
    word = text.strip().lower()
    if not word:
        return []
    await session.monitor.first()
    subjects: list[str] = []
    with suppress(BrokerError):
        subjects = await session.client.schemas.subjects()
    sample = session.monitor.history.sample
    subscriptions = {
        (each.subscription, base_of(topic.topic))
        for topic in (() if sample is None else sample.topics)
        for each in topic.subscriptions
    }
    found = [
        *candidates(session.monitor.names, sorted(subscriptions), subjects),
        *await _programs(session),
    ]
    return best(found, word)


async def _programs(session: Session) -> list[Result]:
    """Return the connectors and the pipelines that the user may see."""
    found = [
        Result(
            each.name,
            f"connector of {each.topic}",
            address("/connectors", name=each.name),
        )
        for each in (await session.client.connectors.list()).connectors
    ]
    for _, watched in await visible_connectors(session):
        each = watched.status
        href = address("/connectors", name=each.connector)
        found.append(Result(each.connector, f"connector of {each.topic}", href))
    for pipeline in await visible_pipelines(session):
        href = address("/pipeline", id=pipeline.id)
        found.append(Result(pipeline.run.name, "pipeline", href))
    return found


def candidates(
    topics: Iterable[str],
    subscriptions: Iterable[tuple[str, str]],
    subjects: Iterable[str],
) -> Iterator[Result]:
    """Yield everything that can be found."""
    for text, path in PAGES:
        yield Result(text, "page", path)
    for name in dict.fromkeys(map(base_of, topics)):
        yield Result(name, "topic", address("/topic", name=name))
    for name, topic in subscriptions:
        href = address("/topic", name=topic, tab="subscriptions")
        yield Result(name, f"subscription of {topic}", href)
    for name in subjects:
        yield Result(name, "schema", address("/schema", subject=name))


def best(found: Iterable[Result], word: str) -> list[Result]:
    """Return the results whose names have *word*, those that begin with it first."""
    matching = [each for each in found if word in each.text.lower()]
    matching.sort(
        key=lambda each: (
            not each.text.lower().lstrip("/").startswith(word.lstrip("/")),
            len(each.text),
        )
    )
    return matching[:RESULTS_MAX]
