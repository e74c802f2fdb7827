"""The brokers, their storage, and moves of shards between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from nicegui import ui

from pydanube.model.clusters import BrokerMode, ClusterDescription, ShardMove
from pydanube.model.descriptions import StorageDescription
from pydanube.model.quantity_formats import format_age, format_bytes
from pydanube.security.permissions import Permission
from pydanube_console.access import CLUSTER
from pydanube_console.frame import Page, frame
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    element,
    join,
    panel,
    table,
)
from pydanube_console.sessions import Session


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Cluster", current="/cluster") as page:
        content = page.show(element("p", "Measuring …", class_="muted"))
        actions = _Actions(page)
        await actions.allow()

        async def update() -> None:
            await session.monitor.first()
            monitor = session.monitor
            if monitor.cluster is None:
                content.set_content(element("p", "You may not see the cluster."))
                return
            now_us = time.time_ns() // 1000
            content.set_content(render(monitor.cluster, monitor.storages, now_us))
            actions.set_brokers(monitor.cluster)

        page.refresh(update)


def render(
    cluster: ClusterDescription, storages: Mapping[str, StorageDescription], now_us: int
) -> Html:
    """Return the brokers and their storage."""
    return join([_brokers(cluster, now_us), _storages(storages)])


def _brokers(cluster: ClusterDescription, now_us: int) -> Html:
    rows = [
        (
            join(
                [each.broker_id, " ", badge("controller") if each.is_controller else ""]
            ),
            badge(
                each.mode.value, "good" if each.mode is BrokerMode.ACTIVE else "warn"
            ),
            each.shard_count,
            each.incoming_count,
            each.url or badge("not running", "bad" if cluster.shard_count else "plain"),
            each.zone,
            ""
            if each.started_at is None
            else format_age(max(0.0, (now_us - each.started_at) / 1e6)),
        )
        for each in cluster.brokers
    ]
    columns = [
        Column("Broker"),
        Column("State"),
        Column("Shards", is_number=True),
        Column("Incoming", is_number=True, is_wide_only=True),
        Column("Address"),
        Column("Zone", is_wide_only=True),
        Column("Up", is_number=True, is_wide_only=True),
    ]
    if not cluster.shard_count:
        note = "One broker, which is not part of a cluster."
    elif cluster.unserved_count:
        unserved = f"{cluster.unserved_count} of {cluster.shard_count} shards"
        note = f"No broker serves {unserved}."
    else:
        note = f"All {cluster.shard_count} shards are served."
    shown = table(columns, rows, caption="Brokers")
    return panel("Brokers", element("p", note, class_="muted"), shown)


def _storages(storages: Mapping[str, StorageDescription]) -> Html:
    rows = [
        (
            broker,
            format_bytes(each.local_bytes),
            f"{format_bytes(each.journal_bytes)} ({each.journal_kind})",
            f"{each.backlog_segments} ({format_bytes(each.backlog_bytes)})"
            if each.remote_url
            else "no remote store",
            join([badge(problem, "bad") for problem in each.problems]) or "none",
        )
        for broker, each in sorted(storages.items())
    ]
    columns = [
        Column("Broker"),
        Column("Local segments", is_number=True),
        Column("Journal", is_number=True),
        Column("Not uploaded", is_number=True, is_wide_only=True),
        Column("Problems"),
    ]
    return panel("Storage", table(columns, rows, caption="Storage of brokers"))


class _Actions:
    """Drain a broker, activate it again, and balance the load; only in a cluster."""

    def __init__(self, page: Page) -> None:
        self._page = page
        with ui.row().classes("tools") as self._row:
            self._broker = ui.select([], label="Broker").props("dense outlined")
            self._broker.style("min-width: 10rem")
            self._chosen = [
                ui.button(text, on_click=work).props("flat")
                for text, work in (("Drain", self._drain), ("Activate", self._activate))
            ]
            balance = ui.button("Balance the load", on_click=self._rebalance)
            self._balance = balance.props("flat")
        self._broker.on_value_change(lambda: page.attempt(self.allow))
        self._row.set_visibility(False)

    async def allow(self) -> None:
        """Enable what the user may do, with the broker that is chosen."""
        admin = Permission.CLUSTER_ADMIN
        await self._page.allow(self._balance, admin, CLUSTER)
        for each in self._chosen:
            if await self._page.allow(each, admin, CLUSTER) and not self._broker.value:
                each.disable()

    def set_brokers(self, cluster: ClusterDescription) -> None:
        """Offer the brokers of *cluster*."""
        self._row.set_visibility(bool(cluster.shard_count))
        names = [each.broker_id for each in cluster.brokers]
        if names != self._broker.options:
            self._broker.set_options(names)

    async def _drain(self) -> None:
        name = self._broker.value
        question = f"Move all topics of {name} to other brokers?"
        if await self._page.confirm(question, "Drain"):
            await self._page.attempt(
                lambda: self._page.client.cluster.drain_broker(name, reason="console"),
                f"{name} is draining",
            )

    async def _activate(self) -> None:
        name = self._broker.value
        await self._page.attempt(
            lambda: self._page.client.cluster.activate_broker(name, reason="console"),
            f"{name} is active",
        )

    async def _rebalance(self) -> None:
        planned: list[ShardMove] = []

        async def plan() -> None:
            planned.extend(await self._page.client.cluster.rebalance(dry_run=True))

        if not await self._page.attempt(plan):
            return
        if not planned:
            ui.notify("The load is balanced")
        elif await self._page.confirm(plan_text(planned), "Move"):
            await self._page.attempt(
                self._page.client.cluster.rebalance, "Shards are moving"
            )


def plan_text(moves: Sequence[ShardMove]) -> str:
    """Return what *moves* do, as a question."""
    topics = sum(each.topic_count for each in moves)
    return f"Move {len(moves)} shards with {topics} topics between brokers?"
