"""The connectors and pipelines that a user may see, and what is wrong with them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pydanube.model.quantity_formats import format_age
from pydanube.security.permissions import Permission
from pydanube_connect.status import ConnectorStatus, State
from pydanube_console.access import CLUSTER
from pydanube_console.connector_markup import visible_of
from pydanube_console.connector_monitor import (
    ProcessMonitor,
    WatchedConnector,
    topics_of,
)
from pydanube_console.pipeline_monitor import WatchedPipeline
from pydanube_console.pure.attention import Concern
from pydanube_console.pure.markup import address
from pydanube_console.sessions import Session
from pydanube_console.stored_connector_markup import concerns_of_stored


async def visible_connectors(
    session: Session,
) -> list[tuple[ProcessMonitor, WatchedConnector]]:
    """Return the connectors of topics that the user may describe."""
    if not session.connectors.is_given:
        return []
    processes = await session.connectors.answers()
    topics = await session.access.visible(topics_of(processes))
    return list(visible_of(processes, topics))


async def visible_pipelines(session: Session) -> list[WatchedPipeline]:
    """Return the pipelines, if the user may administrate the cluster."""
    if not session.pipelines.is_given:
        return []
    if not await session.access.may(Permission.CLUSTER_ADMIN, CLUSTER):
        return []
    await session.pipelines.first()
    return list(session.pipelines.pipelines.values())


async def concerns_of_programs(session: Session) -> list[Concern]:
    """Return the concerns about what the user may see."""
    listed = await session.client.connectors.list()
    found = list(concerns_of_stored(listed.connectors, listed.now))
    for _, each in await visible_connectors(session):
        found += concerns_of_connector(each.status, time.time_ns() // 1000)
    for url, process in session.connectors.processes.items():
        if process.error:
            text = f"the connectors at {url} do not answer"
            found.append(Concern("bad", text, "/connectors"))
    for pipeline in await visible_pipelines(session):
        found += concerns_of_pipeline(pipeline)
    return found


def concerns_of_connector(status: ConnectorStatus, now: int) -> Iterator[Concern]:
    """Yield what is wrong with a connector at *now*, in microseconds since 1970."""
    href = address("/connectors", name=status.connector)
    if status.state is State.FAILED:
        yield Concern("bad", f"connector {status.connector} has failed", href)
    elif status.is_degraded(now):
        age = format_age(status.retrying_s(now))
        text = f"connector {status.connector} has retried for {age}"
        yield Concern("bad", text, href)
    elif status.state is State.RETRYING:
        yield Concern("warn", f"connector {status.connector} retries", href)


def concerns_of_pipeline(pipeline: WatchedPipeline) -> Iterator[Concern]:
    """Yield what is wrong with a pipeline."""
    name, state = pipeline.run.name, pipeline.run.shown
    href = address("/pipeline", id=pipeline.id)
    if state in {"failed", "died"}:
        yield Concern("bad", f"pipeline {name} has {state}", href)
