"""The page for a topic that does not exist, or that the user may not see."""

from __future__ import annotations

import asyncio
from difflib import get_close_matches

from nicegui import ui

from pydanube.model.errors import (
    InvalidName,
    InvalidRequest,
    NamespaceNotFound,
    PermissionDenied,
    TopicNotFound,
)
from pydanube.model.subscription_lag import base_of
from pydanube.security.permissions import Permission
from pydanube_console.frame import Page
from pydanube_console.pure.markup import address, element, join, link, panel

SUGGESTED_MAX = 5


async def shows_missing(page: Page, name: str) -> bool:
    """Say that there is no topic *name*, if it is so; return whether it is."""
    try:
        await page.client.topics.existing_partitions(name)
    except (InvalidName, InvalidRequest) as error:
        page.show(panel("No such topic", element("p", str(error)), _ways()))
        return True
    except (TopicNotFound, NamespaceNotFound, PermissionDenied):
        await _show_suggestions(page, name)
        return True
    return False


async def _show_suggestions(page: Page, name: str) -> None:
    known = {base_of(each) for each in await page.client.topics.list()}
    # Comparing thousands of names takes a while.
    similar = await asyncio.to_thread(get_close_matches, name, known, SUGGESTED_MAX)
    links = [element("li", link(each, "/topic", name=each)) for each in similar]
    page.show(
        panel(
            "No such topic",
            element("p", f"There is no topic {name}, or you may not see it."),
            join(["Did you mean", element("ul", *links)]) if links else "",
            _ways(),
        )
    )

    async def create() -> None:
        await page.client.topics.create(name)
        ui.navigate.to(address("/topic", name=name))

    button = ui.button("Create this topic", on_click=lambda: page.attempt(create))
    await page.allow(button.props("flat"), Permission.CREATE, name)


def _ways() -> object:
    return element("p", link("All topics", "/topics"))
