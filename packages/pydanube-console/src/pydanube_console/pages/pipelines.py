"""The list of pipelines."""

from __future__ import annotations

import time

from pydanube.security.permissions import Permission
from pydanube_console.access import CLUSTER
from pydanube_console.frame import frame
from pydanube_console.pipeline_markup import (
    NOT_GIVEN,
    NOT_PERMITTED,
    render_pipelines,
)
from pydanube_console.pure.markup import element, join
from pydanube_console.sessions import Session


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Pipelines", current="/pipelines") as page:
        if not session.pipelines.is_given:
            page.show(element("p", NOT_GIVEN, class_="muted"))
            return
        content = page.show(element("p", "Reading …", class_="muted"))

        async def update() -> None:
            if not await session.access.may(Permission.CLUSTER_ADMIN, CLUSTER):
                content.set_content(element("p", NOT_PERMITTED, class_="muted"))
                return
            await session.pipelines.first()
            error = session.pipelines.error
            problem = element("p", error, class_="error") if error else ""
            now_us = time.time_ns() // 1000
            table = render_pipelines(session.pipelines.pipelines.values(), now_us)
            content.set_content(join([problem, table]))

        page.refresh(update)
