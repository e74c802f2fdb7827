"""The findings in one sample that somebody should look at.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydanube.model.clusters import BrokerMode, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.findings import Findings
from pydanube.model.quantity_formats import format_bytes
from pydanube.model.subscription_lag import base_of
from pydanube_console.pure.markup import address

SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class Concern:
    """Something to look at."""

    kind: str
    """``bad``: something does not work; ``warn``: it may become so."""
    text: str
    href: str


def concerns_of(
    findings: Findings,
    storages: Mapping[str, StorageDescription],
    cluster: ClusterDescription | None,
    programs: Iterable[Concern] = (),
) -> list[Concern]:
    """
    Return what needs attention, the worst first, at most ``SHOWN_MAX`` and a summary.

    *programs* has the concerns of connectors and pipelines.
    """
    found = [
        *_of_subscriptions(findings),
        *_of_storages(storages),
        *(() if cluster is None else _of_cluster(cluster)),
        *programs,
    ]
    found.sort(key=lambda each: each.kind != "bad")
    shown = found[:SHOWN_MAX]
    omitted = len(found) - len(shown)
    omitted += findings.finding_count - len(findings.subscriptions)
    if omitted:
        are_bad = findings.problem_count > sum(each.kind == "bad" for each in shown)
        text = f"{omitted:,} more need attention: danube lag shows all subscriptions"
        shown.append(Concern("bad" if are_bad else "warn", text, "/topics"))
    return shown


def _of_subscriptions(findings: Findings) -> Iterator[Concern]:
    for each in findings.subscriptions:
        href = address("/topic", name=base_of(each.topic), tab="subscriptions")
        text = f"{each.subscription} of {each.topic} {each.text}"
        yield Concern("bad" if each.kind.is_problem else "warn", text, href)


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
