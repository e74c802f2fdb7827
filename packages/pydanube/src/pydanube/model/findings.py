"""
The problems of subscriptions, as brokers find them.  Pure.

Brokers find problems, because only they know all topics.  The console, `danube doctor`
and the HTTP interface show the same list, and the metrics of alerts count the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.quantity_formats import format_age, format_messages

LATE_S = 600.0
"""A subscription whose oldest message waits for longer is late."""
FINDINGS_MAX = 1000
"""How many findings a request returns at most; their number is always complete."""

ROUTES_MAX = 1000
"""How many subscriptions with a dead-letter topic are listed."""


class FindingKind(Enum):
    """The kinds of problems, the worst first."""

    CORRUPT_SEGMENT = "corrupt_segment"
    """It waits for a segment that cannot be read."""
    BLOCKED = "blocked"
    """A message that failed too often blocks those behind it."""
    DEAD_LETTERS = "dead_letters"
    """Failed messages cannot be copied to the dead-letter topic."""
    LATE = "late"
    """Its oldest message has waited for long."""
    PAUSED = "paused"
    """It is paused, and messages wait."""

    @property
    def is_problem(self) -> bool:
        """Whether something does not work, rather than only being slow."""
        return self in PROBLEMS


PROBLEMS = frozenset(
    {FindingKind.CORRUPT_SEGMENT, FindingKind.BLOCKED, FindingKind.DEAD_LETTERS}
)
_ORDER = {kind: number for number, kind in enumerate(FindingKind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFinding:
    """A subscription with which something is wrong."""

    topic: str
    """The topic, or the partition."""
    subscription: str
    kind: FindingKind
    text: str
    """The problem, in words."""
    backlog: int = 0
    """How many messages are not acknowledged."""
    age_s: float = 0.0
    """The approximate age of the oldest of them."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeadLetterRoute:
    """A subscription, and where it copies the messages that fail."""

    topic: str
    """The topic, or the base name of a partitioned one."""
    subscription: str
    dead_letter_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of a broker or a cluster, and what was measured."""

    subscriptions: tuple[SubscriptionFinding, ...] = ()
    """The worst first; ``finding_count`` may be larger."""
    finding_count: int = 0
    problem_count: int = 0
    """Those of them that are problems."""
    topic_count: int = 0
    """How many topics and partitions were measured: those that are open."""
    subscription_count: int = 0
    backlog: int = 0
    """The messages that subscriptions have not acknowledged."""
    producers: int = 0
    consumers: int = 0
    byte_count: int = 0
    """The stored size of these topics."""
    published: int = 0
    """Messages published to these topics since the broker opened them."""
    delivered: int = 0
    dead_letter_routes: tuple[DeadLetterRoute, ...] = ()
    """The subscriptions with a dead-letter topic, at most ``ROUTES_MAX``."""


def finding_of(
    topic: str, each: SubscriptionDescription, age_s: float
) -> SubscriptionFinding | None:
    """Return what is wrong with a subscription of *topic*, the worst; or None."""
    kind, text = _kind_of(each, age_s)
    if kind is None:
        return None
    return SubscriptionFinding(
        topic=topic,
        subscription=each.subscription,
        kind=kind,
        text=text,
        backlog=each.backlog,
        age_s=age_s,
    )


def problem_kind(
    *, is_stopped: bool, is_blocked: bool, has_dead_letter_error: bool
) -> FindingKind | None:
    """Return the worst problem of a subscription, if there is one."""
    if is_stopped:
        return FindingKind.CORRUPT_SEGMENT
    if is_blocked:
        return FindingKind.BLOCKED
    return FindingKind.DEAD_LETTERS if has_dead_letter_error else None


def _kind_of(
    each: SubscriptionDescription, age_s: float
) -> tuple[FindingKind | None, str]:
    problem = problem_kind(
        is_stopped=each.stopped_by is not None,
        is_blocked=bool(each.blocked),
        has_dead_letter_error=each.dead_letter_error is not None,
    )
    match problem:
        case FindingKind.CORRUPT_SEGMENT:
            return problem, f"is stopped by {each.stopped_by}"
        case FindingKind.BLOCKED:
            return problem, f"is blocked by message {each.blocked[0][0]}"
        case FindingKind.DEAD_LETTERS:
            text = "cannot copy messages to its dead-letter topic"
            return problem, f"{text}: {each.dead_letter_error}"
    waiting = format_messages(each.backlog)
    if each.backlog and each.is_paused:
        return FindingKind.PAUSED, f"is paused, and {waiting} wait"
    if each.backlog and age_s > LATE_S:
        text = f"is {format_age(age_s)} behind, with {waiting}"
        return FindingKind.LATE, text + ("" if each.consumers else " and no consumer")
    return None, ""


def worst(
    found: Iterable[SubscriptionFinding], count_max: int
) -> tuple[SubscriptionFinding, ...]:
    """Return the worst of *found*, those that wait for longest first."""
    ordered = sorted(
        found,
        key=lambda each: (
            _ORDER[each.kind],
            -each.age_s,
            each.topic,
            each.subscription,
        ),
    )
    return tuple(ordered[:count_max])


def merged(parts: Sequence[Findings], count_max: int = FINDINGS_MAX) -> Findings:
    """Return the findings of several brokers together."""
    return Findings(
        subscriptions=worst(
            (each for part in parts for each in part.subscriptions), count_max
        ),
        finding_count=sum(each.finding_count for each in parts),
        problem_count=sum(each.problem_count for each in parts),
        topic_count=sum(each.topic_count for each in parts),
        subscription_count=sum(each.subscription_count for each in parts),
        backlog=sum(each.backlog for each in parts),
        producers=sum(each.producers for each in parts),
        consumers=sum(each.consumers for each in parts),
        byte_count=sum(each.byte_count for each in parts),
        published=sum(each.published for each in parts),
        delivered=sum(each.delivered for each in parts),
        dead_letter_routes=routes_of(
            each for part in parts for each in part.dead_letter_routes
        ),
    )


def routes_of(found: Iterable[DeadLetterRoute]) -> tuple[DeadLetterRoute, ...]:
    """Return each of *found* once, in order, at most ``ROUTES_MAX``."""
    return tuple(sorted(set(found))[:ROUTES_MAX])
