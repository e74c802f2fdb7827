"""The first page: brokers, rates, storage, lag, and what needs attention."""

from __future__ import annotations

from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube_console.chart_span import ChartSpan
from pydanube_console.frame import frame
from pydanube_console.monitor import Monitor
from pydanube_console.programs import concerns_of_programs
from pydanube_console.pure.attention import Concern, concerns_of
from pydanube_console.pure.charts import short_number, sparkline
from pydanube_console.pure.history import History
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    element,
    join,
    link,
    panel,
    stats,
    table,
)
from pydanube_console.sessions import Session

TOPICS_SHOWN = 10


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Overview", current="/", has_figures=True) as page:
        content = page.show(element("p", "Measuring …", class_="muted"))

        span = ChartSpan(page)

        async def update() -> None:
            await session.monitor.first()
            programs = await concerns_of_programs(session)
            charts = await span.rates(session.monitor.history)
            content.set_content(render(session.monitor, programs, charts))

        span.on_choice([content], update)
        page.refresh(update)


def render(monitor: Monitor, programs: list[Concern], charts: Html) -> Html:
    """Return the page with its *charts*, and with what is wrong with *programs*."""
    history = monitor.history
    if history.sample is None:
        return element("p", monitor.error or "There is no sample.", class_="error")
    concerns = concerns_of(
        monitor.findings, monitor.storages, monitor.cluster, programs
    )
    parts = [
        element("p", f"No new figures: {monitor.error}", class_="error")
        if monitor.error
        else "",
        _numbers(monitor),
        panel("Needs attention", _concerns(concerns, monitor.unmeasured)),
        charts,
        panel("Busiest topics", _busiest(history)),
    ]
    return join(parts)


def _numbers(monitor: Monitor) -> Html:
    history = monitor.history
    assert history.sample is not None
    totals = monitor.findings
    last = history.totals[-1] if history.totals else None
    journal = sum(each.journal_bytes for each in monitor.storages.values())
    closed = monitor.unmeasured
    return stats(
        [
            (
                "Published",
                f"{short_number(last.published_per_s)}/s" if last else "\u2013",
                f"{format_count(totals.producers)} producers",
            ),
            (
                "Delivered",
                f"{short_number(last.delivered_per_s)}/s" if last else "\u2013",
                f"{format_count(totals.consumers)} consumers",
            ),
            (
                "Lag",
                short_number(totals.backlog),
                "messages not acknowledged",
            ),
            (
                "Topics",
                link(format_count(len(monitor.names)), "/topics"),
                f"{format_count(closed)} are not measured" if closed else "",
            ),
            (
                "Stored",
                format_bytes(totals.byte_count),
                f"journal {format_bytes(journal)}" if monitor.storages else "",
            ),
            _brokers(monitor),
        ]
    )


def _brokers(monitor: Monitor) -> tuple[str, object, object]:
    cluster = monitor.cluster
    if cluster is None:
        return "Brokers", "\u2013", "not permitted to know"
    running = sum(each.url != "" for each in cluster.brokers)
    note = f"{cluster.shard_count} shards" if cluster.shard_count else "no cluster"
    return "Brokers", link(running, "/cluster"), note


def _concerns(concerns: list[Concern], unmeasured: int) -> Html:
    note: Html | str = ""
    if unmeasured:
        # What is not measured is not good.
        topics = "1 topic is" if unmeasured == 1 else f"{unmeasured:,} topics are"
        note = element(
            "p",
            f"{topics} not measured: nobody has used them since their broker started, "
            "or you may not ask it.",
            class_="muted",
        )
    if not concerns:
        if unmeasured:
            text = "Nothing that is measured needs attention."
            return join([element("p", text), note])
        return element("p", badge("Good", "good"), " Nothing needs attention.")
    return join([_list(concerns), note])


def _list(concerns: list[Concern]) -> Html:
    words = {"bad": "Problem", "warn": "Warning"}
    return element(
        "ul",
        *(
            element(
                "li",
                badge(words[each.kind], each.kind),
                element("a", each.text, href=each.href),
            )
            for each in concerns
        ),
        class_="concerns",
    )


def _busiest(history: History) -> Html:
    columns = [
        Column("Topic"),
        Column("", is_wide_only=True),
        Column("In/s", is_number=True),
        Column("Out/s", is_number=True),
        Column("Lag", is_number=True),
        Column("Stored", is_number=True, is_wide_only=True),
    ]
    rows = [
        (
            link(each.topic, "/topic", name=each.topic),
            sparkline(
                [point.published_per_s for point in history.of_topic(each.topic)],
                label=f"published per second, now {short_number(each.published_per_s)}",
            ),
            short_number(each.published_per_s),
            short_number(each.delivered_per_s),
            format_count(each.lag),
            format_bytes(each.byte_count),
        )
        for each in history.found[:TOPICS_SHOWN]
    ]
    empty = "There are no topics yet: the first producer creates one."
    return table(columns, rows, caption="The busiest topics", empty=empty)
