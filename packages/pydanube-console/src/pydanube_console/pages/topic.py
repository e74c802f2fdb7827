"""One topic: rates, partitions, subscriptions, segments and settings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from nicegui import ui

from pydanube.client.described_topics import describe_all
from pydanube.model.descriptions import Segments, TopicDescription
from pydanube.model.policy import Retention
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import (
    format_bytes,
    format_count,
    format_duration,
    format_time,
)
from pydanube.model.subscription_lag import base_of, lags_of
from pydanube.security.permissions import Permission
from pydanube_console.access import CLUSTER
from pydanube_console.audit_log import AuditLog, render_changes
from pydanube_console.chart_span import ChartSpan
from pydanube_console.frame import Page, frame
from pydanube_console.missing_topic import shows_missing
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    facts,
    join,
    link,
    panel,
    table,
)
from pydanube_console.pure.subscription_markup import (
    render_subscription,
    render_subscriptions,
)
from pydanube_console.sessions import Session
from pydanube_console.subscription_actions import SubscriptionActions
from pydanube_console.topic_owners import MoveDialog, owners_of
from pydanube_console.topic_settings_form import SettingsForm

SEGMENTS_SHOWN = 100
PARTITIONS_MAX = 64
"""How many partitions are described that are not in the sample."""
TABS = ("overview", "subscriptions", "segments", "settings")


async def show(session: Session, name: str = "", tab: str = "overview") -> None:
    """Show the topic *name*."""
    with frame(session, name, current="/topics", has_figures=True) as page:
        if await shows_missing(page, name):
            return
        move = await _tools(page, name)
        tabs, panels = page.tabs(TABS, tab)
        with panels["overview"]:
            overview = page.show()
        with panels["subscriptions"]:
            listed = page.show()
            actions = SubscriptionActions(page, name)
            chosen = page.show()
        with panels["segments"]:
            segments = page.show()
        with panels["settings"]:
            settings = page.show()
            change = ui.button(
                "Change settings", on_click=lambda: _settings(page, name)
            )
            await page.allow(change, Permission.MANAGE, name)
            operations = page.show()
        log = AuditLog(page.client)

        span = ChartSpan(page)

        async def update() -> None:
            await session.monitor.first()
            parts = await describe(page, name)
            history = session.monitor.history
            if tabs.value == "overview":
                cluster = session.monitor.cluster
                move.set_visibility(cluster is not None and bool(cluster.shard_count))
                owners = {
                    each.topic: each.broker_id
                    for each in parts
                    if each.shard is not None
                }
                charts = await span.rates(history, name)
                overview.set_content(render_overview(parts, charts, owners))
            elif tabs.value == "subscriptions":
                lags = lags_of(parts, time.time_ns() // 1000)
                listed.set_content(render_subscriptions(parts, lags, history))
                actions.set_names(each.subscription for each in lags)
                found = [each for each in lags if each.subscription == actions.chosen]
                chosen.set_content(
                    join(
                        [
                            render_subscription(
                                parts, each, await span.lag(history, each)
                            )
                            for each in found
                        ]
                    )
                )
            elif tabs.value == "segments":
                stored = [
                    await page.client.storage.segments(each.topic)
                    for each in parts[:16]
                ]
                segments.set_content(render_segments(parts, stored))
            else:
                settings.set_content(render_settings(parts[0]))
                await log.update()
                operations.set_content(render_changes(log, name))

        span.on_choice((overview, chosen), update)
        tabs.on_value_change(lambda: page.attempt(update))
        actions.on_choice(lambda: page.attempt(update))
        page.refresh(update)


async def _tools(page: Page, name: str) -> ui.button:
    """Show links and buttons; return the one that moves the topic, which is hidden."""
    with ui.row().classes("tools"):
        ui.html(
            join(
                [
                    link("Browse messages", "/messages", topic=name),
                    " · ",
                    link("Publish", "/messages", topic=name, tab="publish"),
                ]
            ),
            sanitize=False,
        )
        ui.space()
        move = ui.button("Move to a broker").props("flat")
        move.on_click(lambda: _move(page, name))
        move.set_visibility(False)
        remove = ui.button("Delete topic").props("flat color=negative")
        remove.on_click(lambda: _delete(page, name))
        await page.allow(remove, Permission.MANAGE, name)
        await page.allow(move, Permission.CLUSTER_ADMIN, CLUSTER)
    return move


async def describe(page: Page, name: str) -> list[TopicDescription]:
    """
    Return the descriptions of a topic, or of its partitions.

    Those in the last sample are used; of others, at most ``PARTITIONS_MAX``.
    """
    sample = page.session.monitor.history.sample
    known = () if sample is None else sample.topics
    found = [each for each in known if name in {each.topic, base_of(each.topic)}]
    if found:
        return found
    names = await page.client.topics.existing_partitions(name) or [name]
    if len(names) == 1:
        # It raises if there is no such topic.
        return [await page.client.topics.describe(names[0])]
    return await describe_all(page.client, names[:PARTITIONS_MAX])


def render_overview(
    parts: Sequence[TopicDescription], charts: Html, owners: Mapping[str, str]
) -> Html:
    """Return the *charts*, the facts, and the partitions, with any *owners*."""
    first = parts[0]
    producers = sorted({each for part in parts for each in part.producers})
    stored = (
        f"{format_bytes(sum(each.segment_bytes for each in parts))} in "
        f"{sum(each.segment_count for each in parts)} segments, "
        f"{format_bytes(sum(each.tail_bytes for each in parts))} not sealed"
    )
    about = facts(
        [
            ("Messages", format_count(sum(each.message_count for each in parts))),
            ("Stored", stored),
            ("Dispatch", first.policy.dispatch.name.lower().replace("_", "-")),
            ("Schema", _schema(first)),
            ("Producers", ", ".join(producers[:20]) or "none"),
        ]
    )
    rows = [
        (
            each.topic,
            each.base_offset,
            each.end_offset,
            format_count(each.message_count),
            format_bytes(each.segment_bytes + each.tail_bytes),
            each.epoch,
            *([owners.get(each.topic, badge("none", "bad"))] if owners else []),
        )
        for each in parts
    ]
    columns = [
        Column("Partition" if len(parts) > 1 else "Topic"),
        Column("First offset", is_number=True),
        Column("Next offset", is_number=True),
        Column("Messages", is_number=True),
        Column("Stored", is_number=True, is_wide_only=True),
        Column("Epoch", is_number=True, is_wide_only=True),
        *([Column("Broker")] if owners else []),
    ]
    logs = table(columns, rows, caption="Offsets")
    return join([charts, panel("Topic", about), panel("Offsets", logs)])


def _schema(topic: TopicDescription) -> object:
    if topic.schema is None:
        return "none"
    return link(topic.schema.subject, "/schema", subject=topic.schema.subject)


def render_segments(
    parts: Sequence[TopicDescription], found: Sequence[Segments]
) -> Html:
    """Return the newest segments."""
    rows = [
        (
            topic.topic,
            f"{each.base}\u2013{each.end - 1}",
            format_bytes(each.byte_count),
            _tiers(each.url, each.remote_url),
            format_time(to_datetime(each.last_publish_time)),
        )
        for topic, segments in zip(parts, found, strict=False)
        for each in reversed(segments.segments)
    ]
    columns = [
        Column("Topic"),
        Column("Offsets"),
        Column("Size", is_number=True),
        Column("Copies"),
        Column("Last message", is_wide_only=True),
    ]
    note = (
        f"The first {SEGMENTS_SHOWN} of {len(rows)}."
        if len(rows) > SEGMENTS_SHOWN
        else ""
    )
    shown = table(
        columns,
        rows[:SEGMENTS_SHOWN],
        caption="Segments",
        empty="All messages are in the memory and in the journal.",
    )
    return panel("Segments", note, shown)


def _tiers(url: str, remote_url: str) -> Html:
    local = badge("local") if url and url != remote_url else ""
    return join([local, " ", badge("remote") if remote_url else ""])


def render_settings(topic: TopicDescription) -> Html:
    """Return the settings of a topic."""
    policy, limits = topic.policy, topic.limits
    own = "its own" if policy.retention is not None else "of the namespace"
    ttl = format_duration(policy.ttl_s) if policy.ttl_s else "none"
    holds = ", ".join(each.name for each in topic.holds) or "none"
    seal_age = format_duration(policy.seal_age_s) if policy.seal_age_s else "default"
    window = policy.deduplication
    return panel(
        "Settings",
        facts(
            [
                ("Retention", f"{retention_text(topic.retention)} ({own})"),
                ("Retention holds", holds),
                ("Durability", policy.durability.name.lower()),
                ("Time to live", ttl),
                ("Corrupt segments", policy.on_corruption.value),
                ("Seal after", seal_age),
                ("Deduplication", f"{window.age_s:.0f} s" if window else "none"),
                ("Publish rate", limits.max_publish_rate or "no limit"),
                ("Message size", limits.max_message_size or "the broker's limit"),
            ]
        ),
    )


def retention_text(retention: Retention) -> str:
    """Return what is kept."""
    parts = []
    if retention.age_s is not None:
        parts.append(f"for {format_duration(retention.age_s)}")
    if retention.bytes_max is not None:
        parts.append(f"at most {format_bytes(retention.bytes_max)}")
    if retention.drops_acknowledged:
        parts.append("until all subscriptions have acknowledged")
    return ", ".join(parts) or "everything"


async def _delete(page: Page, name: str) -> None:
    question = f"Delete {name} with all its messages and subscriptions?"
    if await page.confirm(question, "Delete", typed=name):
        done = await page.attempt(
            lambda: page.client.topics.delete(name, force=True), f"{name} is deleted"
        )
        if done:
            ui.navigate.to("/topics")


async def _settings(page: Page, name: str) -> None:
    async def show() -> None:
        names = await page.client.topics.existing_partitions(name)
        topic = await page.client.topics.describe(names[0])
        SettingsForm(page, name, topic).open()

    await page.attempt(show)


async def _move(page: Page, name: str) -> None:
    async def show() -> None:
        names = await page.client.topics.existing_partitions(name)
        owners = await owners_of(page.client, names[:PARTITIONS_MAX])
        cluster = await page.client.cluster.describe()
        MoveDialog(page, name, owners, cluster).open()

    await page.attempt(show)
