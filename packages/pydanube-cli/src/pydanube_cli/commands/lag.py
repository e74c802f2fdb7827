"""`danube lag`: shows how far subscriptions lag behind."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.client.described_topics import describe_topics
from pydanube.model.descriptions import TopicDescription
from pydanube.model.quantity_formats import format_age, format_bytes
from pydanube.model.subscription_lag import SubscriptionLag, lags_of
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.output import Columns, Result, Table
from pydanube_cli.presentation.quantities import optional, parse_duration

EXIT_EXCEEDED = 1

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

COLUMNS: Columns = {
    "Topic": "topic",
    "Subscription": "subscription",
    "Lag": "lag",
    "Size": lambda each: format_bytes(each.byte_count) if each.byte_count else None,
    "Age": lambda each: None if each.age_s is None else format_age(each.age_s),
    "In flight": "in_flight",
    "Consumers": "consumers",
    "Blocked by": lambda each: ", ".join(each.blocked_by),
}


@command(
    app,
    "danube lag",
    "danube lag '/shop/*'",
    "danube lag /shop/orders --partitions --format json",
    "danube lag --max-lag 10000 --max-age 15m",
)
def lag(
    pattern: parameters.Pattern = None,
    *,
    partitions: bool = False,
    max_lag: Annotated[int | None, typer.Option(min=0)] = None,
    max_age: str | None = None,
    url: parameters.Url = DEFAULT_URL,
) -> Result:
    """
    Show how far subscriptions lag behind, the furthest first.

    The lag is the number of messages that a subscription has not acknowledged. The
    size of these messages and the age of the oldest are approximate. For monitoring,
    the exit code is 1 if a subscription exceeds --max-lag or --max-age.

    Args:
        partitions: List each partition; otherwise they are added up.
        max_lag (COUNT): The lag that no subscription should exceed.
        max_age (DURATION): The age that no unacknowledged message should exceed, such
            as 15m.
    """
    age_max_s = optional(parse_duration, max_age)

    async def work(_: Interruption) -> list[TopicDescription]:
        async with connect(url) as client:
            return (await describe_topics(client, pattern))[0]

    described = run(work)
    now_us = time.time_ns() // 1000
    found = lags_of(described, now_us, by_partition=partitions)
    late = [each for each in found if each.exceeds(max_lag, age_max_s)]
    parts: list[str | Table] = [Table.of(found, COLUMNS)]
    if late:
        parts += ["", f"Over the limit: {', '.join(map(_name, late))}"]
    return Result(found, *parts, exit_code=EXIT_EXCEEDED if late else 0)


def _name(each: SubscriptionLag) -> str:
    return f"{each.subscription} of {each.topic}"
