"""
Who may publish to a topic at the moment.

A producer that is open has a *place*, under its name; a name has one place, and a
newcomer of the same name takes it over.  One place may be *exclusive*: then there
are no others, and whoever wants to be the only one is refused, waits in a queue, or
fences those who are there.  All of it is decided here, at once and without waiting;
who waits is called when its turn has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pydanube.model.errors import (
    BrokerError,
    Closed,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
)
from pydanube.model.policy import ProducerAccess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.model.names import TopicName
    from pydanube.model.schemas import ProducerSchema

WAITING_MAX = 1000
"""So many producers may wait for one topic to be theirs alone."""

Fenced = Callable[[BrokerError], None]
"""Told, once at most, that a place was lost, and why."""

Told = Callable[[BrokerError | None], None]
"""Told that the turn has come (None), or that it never will."""


@dataclass(slots=True, kw_only=True)
class Request:
    """That a producer wants to publish."""

    name: str
    access: ProducerAccess = ProducerAccess.SHARED
    on_fenced: Fenced | None = None
    joins: bool = False
    """Whether it is content with the place that one of its name has already."""
    schema: ProducerSchema | None = None
    """What it has promised to write."""


class Place:
    """What a producer has as long as it may publish; identity is the object's."""

    __slots__ = ("is_remembered", "joins", "name", "on_fenced", "refusal", "schema")

    def __init__(self, request: Request) -> None:
        self.name = request.name
        self.on_fenced = request.on_fenced
        self.joins = request.joins
        self.schema = request.schema
        self.refusal: BrokerError | None = None
        """Why the producer may not publish any more; None as long as it may."""
        self.is_remembered = False
        """Whether the producer counts as idle when it leaves this place."""

    @property
    def is_held(self) -> bool:
        """Whether the producer may publish."""
        return self.refusal is None

    def check(self) -> None:
        """
        Let a producer pass that may publish.

        Raises: Why it may not.
        """
        if self.refusal is not None:
            # One error is raised many times, and must not collect where.
            raise self.refusal.with_traceback(None)


class Waiting:
    """A producer that waits for its turn."""

    __slots__ = ("place", "request", "told")

    def __init__(self, request: Request, told: Told) -> None:
        self.request = request
        self.told = told
        self.place: Place | None = None
        """What it got, when its turn had come."""


class Places:
    """The places of one topic."""

    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._held: dict[str, Place] = {}
        self._waiting: deque[Waiting] = deque()
        # The remembered producers without a place, the longest idle first.
        self._idle: dict[str, None] = {}
        self.exclusive: Place | None = None
        """The only place, if it is to be that."""

    # What happened.

    def enter(self, request: Request, count_max: int) -> Place | None:
        """
        A place for a producer; None if it has to ``wait`` for its turn.

        Only a new name counts for *count_max* (0: any number).

        Raises:
            ProducerBusy: It or another one must be the only one.
            QuotaExceeded: There are *count_max* producers already.
        """
        same = self._held.get(request.name)
        others = len(self._held) - (same is not None)
        lost: list[Place] = []
        match request.access:
            case ProducerAccess.SHARED:
                self._refuse_beside_exclusive(same)
                if same is None and 0 < count_max <= others:
                    raise QuotaExceeded(
                        f"Producer limit per topic reached for {self._topic}. "
                        f"Current: {others}, Limit: {count_max}"
                    )
            case ProducerAccess.EXCLUSIVE:
                if others:
                    raise ProducerBusy(
                        f"{self._topic} has another producer: "
                        f"{next(name for name in self._held if name != request.name)}"
                    )
            case ProducerAccess.EXCLUSIVE_WAIT:
                if others:
                    return None
            case ProducerAccess.EXCLUSIVE_FENCE:
                lost = self._fence_others(request.name)
        place = self._seat(request, lost)
        self._end_waiting(request.name)
        _tell(lost)
        return place

    def wait(self, request: Request, told: Told) -> Waiting:
        """
        Stand in line for a place of one's own; *told* is called at the turn.

        Whoever waits already under the same name gives its turn to the newcomer.

        Raises:
            ProducerBusy: Too many wait already.
        """
        waiting = Waiting(request, told)
        for at, earlier in enumerate(self._waiting):
            if earlier.request.name == request.name:
                self._waiting[at] = waiting
                earlier.told(_same_name(request.name))
                return waiting
        if len(self._waiting) >= WAITING_MAX:
            raise ProducerBusy(
                f"{WAITING_MAX} producers wait for {self._topic} already"
            )
        self._waiting.append(waiting)
        return waiting

    def withdraw(self, waiting: Waiting) -> None:
        """Who waited does not want its turn any more, had it come or not."""
        if waiting.place is not None:
            self.leave(waiting.place)
        elif waiting in self._waiting:
            self._waiting.remove(waiting)
            self._call_next()

    def leave(self, place: Place, reason: BrokerError | None = None) -> None:
        """The producer is gone; it may not publish for *reason* any more."""
        if self._held.get(place.name) is not place:
            return
        self._remove(place, reason or Closed(f"the producer {place.name} is closed"))
        self._call_next()

    def fence(self, place: Place, reason: BrokerError) -> None:
        """Take the place from the producer, and say why."""
        if place.is_held:
            self.leave(place, reason)
            _tell([place])

    def remember(self, name: str) -> None:
        """Count the producer *name* as idle whenever it has no place."""
        place = self._held.get(name)
        if place is None:
            self._idle.setdefault(name)
        else:
            place.is_remembered = True

    def forget(self, name: str) -> None:
        """Undo ``remember``."""
        place = self._held.get(name)
        if place is not None:
            place.is_remembered = False
        self._idle.pop(name, None)

    def refuse_waiting(self, reason: BrokerError) -> None:
        """Nobody's turn will come."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.told(reason)

    def close(self, reason: BrokerError) -> None:
        """Take every place from its producer, and say why."""
        self.refuse_waiting(reason)
        held = list(self._held.values())
        for place in held:
            self._remove(place, reason)
        _tell(held)

    # What is known.

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        """The names of those who are there."""
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def idle_count(self) -> int:
        """The number of remembered producers that have no place."""
        return len(self._idle)

    def longest_idle(self, count: int) -> list[str]:
        """Up to *count* remembered producers without a place, longest idle first."""
        return list(islice(self._idle, count))

    def why_not(self, name: str) -> ProducerFenced | None:
        """Why a message of the producer *name* is not taken, if it is not."""
        exclusive = self.exclusive
        if exclusive is None or exclusive.name == name:
            return None
        return _fenced_by(exclusive.name, self._topic)

    # What follows.

    def _refuse_beside_exclusive(self, same: Place | None) -> None:
        if self.exclusive is not None and self.exclusive is not same:
            raise ProducerBusy(
                f"{self._topic} has an exclusive producer: {self.exclusive.name}"
            )
        if same is None and self._waiting:
            raise ProducerBusy(
                f"{self._waiting[0].request.name} waits for being the only producer "
                f"of {self._topic}"
            )

    def _fence_others(self, name: str) -> list[Place]:
        others = [place for place in self._held.values() if place.name != name]
        for place in others:
            self._remove(place, _fenced_by(name, self._topic))
        return others

    def _seat(self, request: Request, lost: list[Place]) -> Place:
        """The producer's place; who had it before is among the *lost*."""
        place = self._held.get(request.name)
        if place is not None and place.joins and request.joins:
            place.on_fenced = request.on_fenced
            place.schema = request.schema
        else:
            if place is not None:
                self._remove(place, _same_name(request.name))
                lost.append(place)
            place = self._held[request.name] = Place(request)
        if self._idle and request.name in self._idle:
            del self._idle[request.name]
            place.is_remembered = True
        is_shared = request.access is ProducerAccess.SHARED
        self.exclusive = None if is_shared else place
        return place

    def _end_waiting(self, name: str) -> None:
        """Who waits under *name* gives way to who has come in under it."""
        for waiting in self._waiting:
            if waiting.request.name == name:
                self._waiting.remove(waiting)
                waiting.told(_same_name(name))
                return

    def _remove(self, place: Place, reason: BrokerError) -> None:
        del self._held[place.name]
        if place.is_remembered:
            self._idle[place.name] = None
        if self.exclusive is place:
            self.exclusive = None
        place.refusal = reason

    def _call_next(self) -> None:
        """Seat whoever is first in line, if nobody else is there."""
        if not self._waiting:
            return
        first = self._waiting[0]
        if any(name != first.request.name for name in self._held):
            return
        self._waiting.popleft()
        lost: list[Place] = []
        first.place = self._seat(first.request, lost)
        first.told(None)
        _tell(lost)


def _tell(lost: list[Place]) -> None:
    # Last, because who is told may come back at once.
    for place in lost:
        if place.on_fenced is not None and place.refusal is not None:
            place.on_fenced(place.refusal)


def _same_name(name: str) -> ProducerFenced:
    return ProducerFenced(f"another producer named {name} is open")


def _fenced_by(name: str, topic: TopicName) -> ProducerFenced:
    return ProducerFenced(f"the producer {name} has {topic} for itself alone")
