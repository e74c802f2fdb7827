"""
The producers that may publish to a topic at the moment.

An open producer has a registration under its name.  A name has one registration; a
new producer with the same name takes it over.  If one registration is *exclusive*,
there are no others, and another producer that asks for exclusive access is refused,
queued, or fences the others.  After the connection of an exclusive producer was lost,
other producers are not admitted for a while, so that it can return.  After the topic
was opened again, the broker does not know who had exclusive access: queued producers
are not admitted for a while, and those that came meanwhile are fenced when the
exclusive producer returns.  All decisions are made here, synchronously; a queued
producer is notified by a callback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from pydanube.model.errors import (
    BrokerError,
    Closed,
    ProducerBusy,
    ProducerFenced,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess
from pydanube.model.schemas import ProducerSchema
from pydanube_broker.broker.pure.limits import check_quota

RETURN_S = 10.0
"""
How long other producers leave exclusive access to the one that had it.

It counts from the loss of its connection, or from the opening of the topic by a broker
that has started or has taken the topic over.
"""

QUEUED_MAX = 1000
"""The number of producers that may wait for exclusive access to one topic."""

OnFenced = Callable[[BrokerError], None]
"""Called at most once, with the reason, when a registration is lost."""

OnAdmitted = Callable[[BrokerError | None], None]
"""Called with None when a queued producer is registered, or with the error."""


@dataclass(slots=True, kw_only=True, eq=False)
class ProducerRegistration:
    """
    A producer's permission to publish to a topic; compared by identity.

    Until ``ProducerRegistrations`` accepts it, it is the producer's request for that.
    """

    name: str
    access: ProducerAccess = ProducerAccess.SHARED
    on_fenced: OnFenced | None = None
    is_joining: bool = False
    """Whether the producer shares a registration of the same name that also joins."""
    schema: ProducerSchema | None = None
    """The schema that the producer has declared."""
    refusal: BrokerError | None = None
    """Why the producer may not publish any more; None while it may."""
    is_returning: bool = False
    """Whether it had a session before its connection broke."""
    is_remembered: bool = False
    """Whether the producer counts as idle after it leaves."""

    @property
    def is_valid(self) -> bool:
        """Whether the producer may publish."""
        return self.refusal is None

    def check(self) -> None:
        """Raise the reason if the producer may not publish any more."""
        if self.refusal is not None:
            # The same exception object is raised repeatedly: drop its traceback.
            raise self.refusal.with_traceback(None)


@dataclass(slots=True, eq=False)
class QueuedProducer:
    """A producer that waits for exclusive access."""

    request: ProducerRegistration
    on_admitted: OnAdmitted
    registration: ProducerRegistration | None = None
    """Its registration, once it was admitted."""


@dataclass(frozen=True, slots=True, eq=False)
class AwaitedReturn:
    """The time in which producers may return before a queued one is admitted."""

    name: str = ""
    """The producer that may return; empty: all that were open before."""


class ProducerRegistrations:
    """The producer registrations of one topic."""

    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._registered: dict[str, ProducerRegistration] = {}
        self._queue: deque[QueuedProducer] = deque()
        # The remembered producers without a registration, the longest idle first.
        self._idle: dict[str, None] = {}
        self.exclusive: ProducerRegistration | None = None
        """The exclusive registration, if there is one."""
        self.awaited: AwaitedReturn | None = None
        """Set while queued producers wait for the return of an earlier one."""

    # Events.

    def register(
        self, request: ProducerRegistration, producers_max: int
    ) -> ProducerRegistration | None:
        """
        Register a producer, or return None if it must be put into the ``queue``.

        Only a new name counts against *producers_max* (0: no limit).

        Raises:
            ProducerBusy: It or another producer has exclusive access.
            ProducerFenced: It returns, and another producer has come meanwhile.
            QuotaExceeded: The topic has *producers_max* producers already.
        """
        same = self._registered.get(request.name)
        others = len(self._registered) - (same is not None)
        fenced: list[ProducerRegistration] = []
        if request.access in (ProducerAccess.SHARED, ProducerAccess.EXCLUSIVE):
            self._check_not_awaited(request)
        match request.access:
            case ProducerAccess.SHARED:
                is_returning = self.awaited is not None and request.is_returning
                self._check_not_exclusive(same, is_returning=is_returning)
                if same is None:
                    what = f"Producer limit per topic reached for {self._topic}"
                    check_quota(what, others, producers_max)
            case ProducerAccess.EXCLUSIVE:
                if self.awaited is not None and request.is_returning:
                    fenced = self._fence_newcomers(request.name)
                    others -= len(fenced)
                if others:
                    other = next(n for n in self._registered if n != request.name)
                    if request.is_returning:
                        raise ProducerFenced(
                            f"{self._topic} has another producer meanwhile: {other}"
                        )
                    raise ProducerBusy(f"{self._topic} has another producer: {other}")
            case ProducerAccess.EXCLUSIVE_WAIT:
                if others or self._must_wait(request):
                    return None
            case ProducerAccess.EXCLUSIVE_FENCE:
                fenced = self._fence_others(request.name)
        registration = self._add(request, fenced)
        self._replace_queued(request.name)
        _notify(fenced)
        return registration

    def queue(
        self, request: ProducerRegistration, on_admitted: OnAdmitted
    ) -> QueuedProducer:
        """
        Queue a producer for exclusive access.

        It takes over the position of a queued producer with the same name.

        Raises:
            ProducerBusy: ``QUEUED_MAX`` producers are queued already.
        """
        queued = QueuedProducer(request, on_admitted)
        for index, earlier in enumerate(self._queue):
            if earlier.request.name == request.name:
                self._queue[index] = queued
                earlier.on_admitted(_fenced_by_same_name(request.name))
                return queued
        if len(self._queue) >= QUEUED_MAX:
            raise ProducerBusy(
                f"{QUEUED_MAX} producers already wait for exclusive access to "
                f"{self._topic}; try again later"
            )
        self._queue.append(queued)
        return queued

    def cancel(self, queued: QueuedProducer) -> None:
        """Remove a producer from the queue, or its registration if it has one."""
        if queued.registration is not None:
            self.leave(queued.registration)
        elif queued in self._queue:
            self._queue.remove(queued)
            self._admit_next()

    def leave(
        self,
        registration: ProducerRegistration,
        reason: BrokerError | None = None,
        *,
        may_return: bool = False,
    ) -> AwaitedReturn | None:
        """
        Remove a registration; later use of it raises *reason*.

        Returns: What must be given to ``stop_awaiting`` after ``RETURN_S``, if
            the producer had exclusive access and *may_return*.
        """
        if self._registered.get(registration.name) is not registration:
            return None
        is_exclusive = self.exclusive is registration
        closed = reason or Closed(f"the producer {registration.name} is closed")
        self._remove(registration, closed)
        if may_return and is_exclusive:
            return self.await_return(registration.name)
        self._admit_next()
        return None

    def await_return(self, name: str = "") -> AwaitedReturn:
        """Admit no queued producer until *name* is registered; empty: any of before."""
        self.awaited = AwaitedReturn(name)
        return self.awaited

    def stop_awaiting(self, awaited: AwaitedReturn) -> None:
        """Admit queued producers again, unless it was awaited once more meanwhile."""
        if self.awaited is awaited:
            self.awaited = None
            self._admit_next()

    def fence(self, registration: ProducerRegistration, reason: BrokerError) -> None:
        """Remove a registration and notify its producer."""
        if registration.is_valid:
            self.leave(registration, reason)
            _notify([registration])

    def remember(self, name: str) -> None:
        """Count the producer *name* as idle while it is not registered."""
        registration = self._registered.get(name)
        if registration is None:
            self._idle.setdefault(name)
        else:
            registration.is_remembered = True

    def forget(self, name: str) -> None:
        """Undo ``remember``."""
        registration = self._registered.get(name)
        if registration is not None:
            registration.is_remembered = False
        self._idle.pop(name, None)

    def reject_queued(self, reason: BrokerError) -> None:
        """Empty the queue and notify its producers."""
        rejected, self._queue = self._queue, deque()
        for queued in rejected:
            queued.on_admitted(reason)

    def close(self, reason: BrokerError) -> None:
        """Remove all registrations and queued producers, and notify them."""
        self.reject_queued(reason)
        fenced = list(self._registered.values())
        for registration in fenced:
            self._remove(registration, reason)
        _notify(fenced)

    # Queries.

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the registered producers."""
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    @property
    def queued_count(self) -> int:
        """The number of producers that wait for exclusive access."""
        return len(self._queue)

    @property
    def idle_count(self) -> int:
        """The number of remembered producers that are not registered."""
        return len(self._idle)

    def longest_idle(self, count: int) -> list[str]:
        """Return up to *count* idle producers, the longest idle first."""
        return list(islice(self._idle, count))

    def find_fencing(self, name: str) -> ProducerFenced | None:
        """Return the error if an exclusive producer fences the producer *name*."""
        exclusive = self.exclusive
        if exclusive is None or exclusive.name == name:
            return None
        return _fenced_by(exclusive.name, self._topic)

    # Helpers.

    def _must_wait(self, request: ProducerRegistration) -> bool:
        """Return whether another producer than that of *request* may return first."""
        return (
            self.awaited is not None
            and self.awaited.name != request.name
            and not request.is_returning
        )

    def _check_not_exclusive(
        self, same: ProducerRegistration | None, *, is_returning: bool
    ) -> None:
        if self.exclusive is not None and self.exclusive is not same:
            raise ProducerBusy(
                f"{self._topic} has an exclusive producer: {self.exclusive.name}"
            )
        if same is None and self._queue and not is_returning:
            raise ProducerBusy(
                f"the producer {self._queue[0].request.name} waits for exclusive "
                f"access to {self._topic}"
            )

    def _check_not_awaited(self, request: ProducerRegistration) -> None:
        """Raise if another producer that had exclusive access may still return."""
        if self.awaited is not None and self.awaited.name not in ("", request.name):
            if request.is_returning and request.access is ProducerAccess.EXCLUSIVE:
                raise _fenced_by(self.awaited.name, self._topic)
            raise ProducerBusy(
                f"the producer {self.awaited.name} has exclusive access to "
                f"{self._topic}; it lost its connection, and keeps the access for "
                f"{RETURN_S:.0f} s: try again later, or use exclusive_wait or "
                "exclusive_fence"
            )

    def _fence_others(self, name: str) -> list[ProducerRegistration]:
        others = [each for each in self._registered.values() if each.name != name]
        return self._fence(others, name)

    def _fence_newcomers(self, name: str) -> list[ProducerRegistration]:
        """Fence the producers that came before *name* returned, if all are new."""
        others = [each for each in self._registered.values() if each.name != name]
        if any(each.is_returning for each in others):
            return []
        return self._fence(others, name)

    def _fence(
        self, others: list[ProducerRegistration], name: str
    ) -> list[ProducerRegistration]:
        for registration in others:
            self._remove(registration, _fenced_by(name, self._topic))
        return others

    def _add(
        self, request: ProducerRegistration, fenced: list[ProducerRegistration]
    ) -> ProducerRegistration:
        """Return the registration; append the one that it replaces to *fenced*."""
        registration = self._registered.get(request.name)
        if registration is not None and registration.is_joining and request.is_joining:
            registration.on_fenced = request.on_fenced
            registration.schema = request.schema
        else:
            if registration is not None:
                self._remove(registration, _fenced_by_same_name(request.name))
                fenced.append(registration)
            registration = self._registered[request.name] = request
        if self._idle and request.name in self._idle:
            del self._idle[request.name]
            registration.is_remembered = True
        is_shared = request.access is ProducerAccess.SHARED
        self.exclusive = None if is_shared else registration
        if self.awaited is not None and (
            self.awaited.name == request.name
            or request.access is ProducerAccess.EXCLUSIVE_FENCE
            or (not is_shared and request.is_returning)
        ):
            self.awaited = None
        return registration

    def _replace_queued(self, name: str) -> None:
        """Remove the queued producer whose name has just been registered."""
        for queued in self._queue:
            if queued.request.name == name:
                self._queue.remove(queued)
                queued.on_admitted(_fenced_by_same_name(name))
                return

    def _remove(self, registration: ProducerRegistration, reason: BrokerError) -> None:
        del self._registered[registration.name]
        if registration.is_remembered:
            self._idle[registration.name] = None
        if self.exclusive is registration:
            self.exclusive = None
        registration.refusal = reason

    def _admit_next(self) -> None:
        """Register the first producer of the queue if no other is registered."""
        if not self._queue or self.awaited is not None:
            return
        first = self._queue[0]
        if any(name != first.request.name for name in self._registered):
            return
        self._queue.popleft()
        fenced: list[ProducerRegistration] = []
        first.registration = self._add(first.request, fenced)
        first.on_admitted(None)
        _notify(fenced)


def _notify(fenced: list[ProducerRegistration]) -> None:
    # Called last, because a callback may register its producer again.
    for registration in fenced:
        if registration.on_fenced is not None and registration.refusal is not None:
            registration.on_fenced(registration.refusal)


def _fenced_by_same_name(name: str) -> ProducerFenced:
    return ProducerFenced(f"another producer named {name} is open")


def _fenced_by(name: str, topic: TopicName) -> ProducerFenced:
    return ProducerFenced(f"the producer {name} has exclusive access to {topic}")
