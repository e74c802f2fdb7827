"""The list of topics, and the form for a new one."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from pydanube.model.activity import Sample
from pydanube.model.policy import KEEP_ALL, Retention
from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube_console.frame import Page, frame
from pydanube_console.pure.charts import short_number
from pydanube_console.pure.markup import (
    Column,
    Html,
    address,
    badge,
    element,
    join,
    link,
    table,
)
from pydanube_console.pure.topic_rows import (
    ORDERS,
    TopicPage,
    TopicRow,
    page_of,
    rows_of,
)
from pydanube_console.sessions import Session

COLUMNS = [
    Column("Topic"),
    Column("Partitions", is_number=True, is_wide_only=True),
    Column("In/s", is_number=True),
    Column("Out/s", is_number=True),
    Column("Lag", is_number=True),
    Column("Stored", is_number=True, is_wide_only=True),
    Column("Producers", is_number=True, is_wide_only=True),
    Column("Consumers", is_number=True, is_wide_only=True),
]


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Topics", current="/topics", has_figures=True) as page:
        with ui.row().classes("tools"):
            text = ui.input("Filter").props("dense outlined clearable debounce=200")
            order = ui.select(list(ORDERS), value="Name", label="Sort by")
            order.props("dense outlined").style("min-width: 7rem")
            ui.button("New topic", on_click=_form(page)).props("unelevated")
        content = page.show(element("p", "Measuring …", class_="muted"))
        pages = ui.pagination(1, 1, direction_links=True).props("max-pages=7")

        rows: list[TopicRow] = []
        shown: Sample | None = None

        async def update() -> None:
            nonlocal rows, shown
            monitor = session.monitor
            await monitor.first()
            if monitor.history.sample is not shown:
                # There may be 10,000 rows.
                shown = monitor.history.sample
                rows = rows_of(monitor.names, monitor.history.found)
            found = page_of(
                rows,
                text=text.value or "",
                order=order.value,
                number=pages.value or 1,
            )
            pages.max = found.page_count
            pages.value = min(pages.value or 1, found.page_count)
            content.set_content(render(found))

        for each in (text, order, pages):
            each.on_value_change(lambda: page.attempt(update))
        page.refresh(update)


def render(found: TopicPage) -> Html:
    """Return the table of one page."""
    shown = table(
        COLUMNS,
        [_cells(each) for each in found.rows],
        caption="Topics",
        empty="There are no such topics.",
    )
    count = element("p", f"{format_count(found.count)} topics", class_="muted")
    return element("section", join([count, shown]), class_="panel")


def _cells(row: TopicRow) -> list[object]:
    name = link(row.name, "/topic", name=row.name)
    partitions = row.partitions or ""
    each = row.activity
    if each is None:
        return [name, partitions, badge("not measured"), "", "", "", "", ""]
    return [
        name,
        partitions,
        short_number(each.published_per_s),
        short_number(each.delivered_per_s),
        format_count(each.lag),
        format_bytes(each.byte_count),
        each.producers,
        each.consumers,
    ]


def _form(page: Page) -> Callable[[], object]:
    """Return what opens the form for a new topic."""
    with ui.dialog() as dialog, ui.card().classes("form"):
        ui.label("New topic").classes("text-h6")
        name = ui.input("Name", placeholder="/default/orders")
        partitions = ui.number("Partitions", min=0, max=1024, precision=0)
        partitions.props('hint="Empty: one log without partitions" clearable')
        reliable = ui.switch("Store messages on disk", value=True)
        age = ui.number("Keep messages for hours", min=0).props("clearable")
        size = ui.number("Keep at most GiB", min=0).props("clearable")

        async def create() -> None:
            topic = (name.value or "").strip()
            retention = Retention(
                age_s=age.value * 3600 if age.value else None,
                bytes_max=int(size.value * 1024**3) if size.value else None,
            )
            await page.client.topics.create(
                topic,
                partitions=int(partitions.value) if partitions.value else None,
                reliable=reliable.value,
                retention=None if retention == KEEP_ALL else retention,
            )
            ui.navigate.to(address("/topic", name=topic))

        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Create", on_click=lambda: page.attempt(create))
    return dialog.open
