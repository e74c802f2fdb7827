"""One pipeline: the progress of its run, its graph, and its log."""

from __future__ import annotations

import asyncio

from nicegui import ui

from pydanube.model.errors import NotFound
from pydanube.security.permissions import Permission
from pydanube_console.access import CLUSTER
from pydanube_console.frame import Page, frame
from pydanube_console.pipeline_markup import (
    LINES_MAX,
    NOT_PERMITTED,
    render_log,
    render_run,
)
from pydanube_console.pipeline_monitor import WatchedPipeline
from pydanube_console.pure.graph_drawing import draw_graph
from pydanube_console.pure.markup import Html, element, link, panel
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads
from pydanube_spark.pipelines.log_files import last_lines
from pydanube_spark.pipelines.runs import Run

TABS = ("progress", "graph", "log")


async def show(
    session: Session,
    id: str = "",  # noqa: A002  # Its name in addresses.
    tab: str = "progress",
    *,
    payloads: Payloads = Payloads.SHOW,
) -> None:
    """Show the pipeline with the state directory that *id* stands for."""
    if not await session.access.may(Permission.CLUSTER_ADMIN, CLUSTER):
        with frame(session, "Pipeline", current="/pipelines") as page:
            page.show(element("p", NOT_PERMITTED, class_="muted"))
        return
    await session.pipelines.first()
    known = session.pipelines.pipelines.get(id)
    title = "Pipeline" if known is None else known.run.name
    with frame(session, title, current="/pipelines") as page:
        with ui.row().classes("tools"):
            ui.html(link("All pipelines", "/pipelines"), sanitize=False)
            ui.space()
            stop = ui.button("Stop").props("flat color=negative")
            stop.on_click(lambda: _stop(page, id))
            stop.disable()
        tabs, panels = page.tabs(TABS, tab)
        shown = {}
        for name in TABS:
            with panels[name]:
                shown[name] = page.show()

        async def update() -> None:
            await session.access.require(Permission.CLUSTER_ADMIN, CLUSTER)
            await session.pipelines.first()
            found = pipeline_of(session, id)
            stop.set_enabled(found.run.is_running)
            name = tabs.value
            if name == "graph":
                content = await asyncio.to_thread(_graph, found.run)
            elif name == "log":
                content = await asyncio.to_thread(_log, found.run, payloads)
            else:
                content = render_run(found, session.pipelines.interval_s)
            shown[name].set_content(content)

        tabs.on_value_change(lambda: page.attempt(update))
        page.refresh(update)


def pipeline_of(session: Session, pipeline_id: str) -> WatchedPipeline:
    """
    Return the pipeline with this id.

    Raises:
        NotFound: The console was given no such pipeline.
    """
    found = session.pipelines.pipelines.get(pipeline_id)
    if found is None:
        raise NotFound("this console knows no such pipeline; it may have been removed")
    return found


def _graph(run: Run) -> Html:
    graph = run.state.read_graph()
    if graph is None:
        text = "The graph is recorded when the pipeline is run the next time."
        return panel("Graph", element("p", text, class_="muted"))
    return panel("Graph", draw_graph(graph))


def _log(run: Run, payloads: Payloads) -> Html:
    if payloads is not Payloads.SHOW:
        text = "This console shows no logs, because they may contain rows."
        return panel("Log", element("p", text, class_="muted"))
    lines, _ = last_lines(run.state.log_file, LINES_MAX)
    return render_log(lines, run.state.log_file)


async def _stop(page: Page, pipeline_id: str) -> None:
    name = pipeline_of(page.session, pipeline_id).run.name
    question = (
        f"Stop {name} after its current micro-batches? 'danube pipeline run' "
        "continues it where it has stopped."
    )

    async def stop() -> None:
        await page.session.access.require(Permission.CLUSTER_ADMIN, CLUSTER)
        run = pipeline_of(page.session, pipeline_id).run
        if not run.state.is_locked():
            raise NotFound(f"{name} is not running")
        run.state.request_stop()
        page.session.note_change(f"stop the pipeline {name}")

    if await page.confirm(question, "Stop", typed=name):
        await page.attempt(stop, f"{name} stops after its current micro-batches")
