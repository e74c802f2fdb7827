"""Reduction of a failing plan to a smaller one that violates the same rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.plan import Plan


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return the smallest plan that *fails*, found by leaving out parts."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(plan):
            if fails(smaller):
                plan, is_smaller = smaller, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with one part less."""
    faults = plan.faults
    for kind in faults.kinds:
        kinds = {each: w for each, w in faults.kinds.items() if each != kind}
        yield replace(plan, faults=replace(faults, kinds=kinds))
    for topic in plan.topics[1:]:
        yield replace(
            plan,
            topics=_without(plan.topics, topic),
            producers=tuple(p for p in plan.producers if p.topic != topic.name),
            subscriptions=tuple(s for s in plan.subscriptions if s.topic != topic.name),
        )
    for producer in plan.producers:
        if len(plan.producers) > 1:
            yield replace(plan, producers=_without(plan.producers, producer))
        if producer.message_count > 1:
            fewer = replace(producer, message_count=producer.message_count // 2)
            yield replace(plan, producers=_instead(plan.producers, producer, fewer))
    for each in plan.subscriptions:
        if len(plan.subscriptions) > 1:
            yield replace(plan, subscriptions=_without(plan.subscriptions, each))
        for fewer in _smaller_subscriptions(each):
            yield replace(plan, subscriptions=_instead(plan.subscriptions, each, fewer))
    if faults.length_s > 1:
        yield replace(plan, faults=replace(faults, length_s=faults.length_s / 2))


def _smaller_subscriptions(each: Any) -> Iterator[Any]:
    for consumer in each.consumers:
        if len(each.consumers) > 1:
            yield replace(each, consumers=_without(each.consumers, consumer))
    for operation in each.operations:
        yield replace(each, operations=_without(each.operations, operation))
    for name in ("policy", "limits", "ack_timeout_s"):
        if getattr(each, name) is not None:
            yield replace(each, **{name: None})


def _without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    return tuple(each for each in items if each is not item)


def _instead(items: tuple[Any, ...], item: Any, other: Any) -> tuple[Any, ...]:
    return tuple(other if each is item else each for each in items)
