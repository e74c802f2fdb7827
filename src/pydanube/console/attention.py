"""The findings in one sample that somebody should look at.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydanube.console.markup import address
from pydanube.model.clusters import BrokerMode, ClusterDescription
from pydanube.model.descriptions import StorageDescription, TopicDescription
from pydanube.model.quantity_formats import format_age, format_bytes, format_messages
from pydanube.model.subscription_lag import lags_of

LAG_AGE_MAX_S = 600.0
"""A subscription whose oldest message waits for longer is reported."""
SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class Concern:
    """Something to look at."""

    kind: str
    """``bad``: something does not work; ``warn``: it may become so."""
    text: str
    href: str


def concerns_of(
    topics: Iterable[TopicDescription],
    storages: Mapping[str, StorageDescription],
    cluster: ClusterDescription | None,
    now_us: int,
    programs: Iterable[Concern] = (),
) -> list[Concern]:
    """
    Return what needs attention, the worst first, at most ``SHOWN_MAX``.

    *programs* has the concerns of connectors and pipelines.
    """
    found = [
        *_of_subscriptions(topics, now_us),
        *_of_storages(storages),
        *(() if cluster is None else _of_cluster(cluster)),
        *programs,
    ]
    found.sort(key=lambda each: each.kind != "bad")
    return found[:SHOWN_MAX]


def _of_subscriptions(
    topics: Iterable[TopicDescription], now_us: int
) -> Iterator[Concern]:
    for each in lags_of(topics, now_us):
        href = address("/topic", name=each.topic, tab="subscriptions")
        who = f"{each.subscription} of {each.topic}"
        problems = [reason for reason in each.blocked_by if reason != "paused"]
        if problems:
            text = f"{who} is blocked by {', '.join(problems)}"
            yield Concern("bad", text, href)
        elif each.blocked_by and each.lag:
            text = f"{who} is paused, and {format_messages(each.lag)} wait"
            yield Concern("warn", text, href)
        elif (each.age_s or 0.0) > LAG_AGE_MAX_S:
            age = format_age(each.age_s or 0.0)
            text = f"{who} is {age} behind, with {format_messages(each.lag)}"
            if not each.consumers:
                text += " and no consumer"
            yield Concern("warn", text, href)


def _of_storages(storages: Mapping[str, StorageDescription]) -> Iterator[Concern]:
    for broker, each in storages.items():
        for problem in each.problems:
            yield Concern("bad", f"broker {broker}: {problem}", "/cluster")
        if each.is_refusing:
            waiting = format_bytes(each.backlog_bytes)
            yield Concern(
                "bad",
                f"broker {broker} refuses to publish until {waiting} are uploaded",
                "/cluster",
            )


def _of_cluster(cluster: ClusterDescription) -> Iterator[Concern]:
    if cluster.unserved_count:
        yield Concern(
            "bad", f"no broker serves {cluster.unserved_count} shards", "/cluster"
        )
    for each in cluster.brokers:
        if each.mode is not BrokerMode.ACTIVE:
            text = f"broker {each.broker_id} is {each.mode.value}"
            yield Concern("warn", text, "/cluster")
