"""
Meters: the use of a quota, and when a client that exceeds it may go on.

Pure: facts and times go in, and delays or refusals come out.  Rates never refuse: what
was received or sent is charged, and the caller waits for the delay that is returned
before it reads or sends more.  Each caller waits for its own charge, so callers that
share a meter go on in the order in which they were charged.  Counts and storage refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pydanube.model.errors import QuotaExceeded
from pydanube.model.token_bucket import TokenBucket
from pydanube.security.quotas import NO_QUOTA, Quota, QuotaScope, QuotaTarget
from pydanube_broker.dispatch.shared_counts import ONE_PROCESS, SharedCounts

CREDIT_BYTES_MIN = 64 * 1024
"""The least credit of a consumer whose rate is limited."""
_CREDITS_PER_S = 8

MEASURED = ("topics", "subscriptions", "storage_bytes")
"""The limits whose use is measured now and then."""
_RATES = ("bytes_in_per_s", "bytes_out_per_s", "requests_per_s")

REMEDIES = {
    "connections": "close some connections",
    "topics": "delete topics",
    "subscriptions": "delete subscriptions",
    "storage_bytes": "shorten the retention",
    "sessions": "end some sessions, by a clean start or a shorter session expiry",
}
"""The remedy for each limit that refuses."""


class QuotaCounts:
    """Counts of all quotas of a broker, by kind of target and limit."""

    def __init__(self) -> None:
        self.throttled_s: Counter[tuple[QuotaScope, str]] = Counter()
        self.refused: Counter[tuple[QuotaScope, str]] = Counter()


class QuotaMeter:
    """
    The use of one target; without limits it delays and refuses nothing.

    If the broker has several processes, each has a meter for the target, and all charge
    what the others have charged.
    """

    __slots__ = (
        *("_added", "_counts", "_measured", "_shared", "bytes_in", "bytes_out"),
        *("connections", "quota", "refused_count", "requests", "target"),
        "throttled_s",
    )

    def __init__(
        self,
        target: QuotaTarget,
        counts: QuotaCounts,
        quota: Quota = NO_QUOTA,
        now: float = 0.0,
        shared: SharedCounts = ONE_PROCESS,
    ) -> None:
        self.target = target
        self._shared = shared.of(str(target))
        self.quota = NO_QUOTA
        self.connections = 0
        """The open connections of the principal to this process."""
        self.bytes_in: TokenBucket | None = None
        """None: no limit."""
        self.bytes_out: TokenBucket | None = None
        """None: no limit."""
        self.requests: TokenBucket | None = None
        """None: no limit."""
        self.throttled_s = 0.0
        """The sum of all delays in this process."""
        self.refused_count = 0
        self._counts = counts
        self._measured: Counter[str] = Counter()
        self._added: Counter[str] = Counter()
        self.set_quota(quota, now)

    def set_quota(self, quota: Quota, now: float) -> None:
        """Change the limits; what is used stays."""
        # A limit counts what is charged from now on.
        for limit in _RATES:
            self._shared.news(limit)
        self.quota = quota
        self.bytes_in = _changed(self.bytes_in, quota.bytes_in_per_s, now)
        self.bytes_out = _changed(self.bytes_out, quota.bytes_out_per_s, now)
        self.requests = _changed(self.requests, quota.requests_per_s, now)

    # Rates.

    def take_in(self, byte_count: int, now: float) -> float:
        """Charge published bytes; return the seconds until more may be received."""
        return self._take(self.bytes_in, "bytes_in_per_s", byte_count, now)

    def take_out(self, byte_count: int, now: float) -> float:
        """Charge sent bytes; return the seconds until more may be sent."""
        return self._take(self.bytes_out, "bytes_out_per_s", byte_count, now)

    def take_request(self, now: float) -> float:
        """Charge a request; return the seconds until the next may be received."""
        return self._take(self.requests, "requests_per_s", 1, now)

    def delay_in_s(self, now: float) -> float:
        """Return the seconds until more may be published."""
        return self._delay_s(self.bytes_in, "bytes_in_per_s", now)

    def delay_out_s(self, now: float) -> float:
        """Return the seconds until more may be sent."""
        return self._delay_s(self.bytes_out, "bytes_out_per_s", now)

    def delay_request_s(self, now: float) -> float:
        """Return the seconds until the next request may be received."""
        return self._delay_s(self.requests, "requests_per_s", now)

    def delay_received_s(self, now: float) -> float:
        """Return the seconds until anything more may be received."""
        return max(self.delay_in_s(now), self.delay_request_s(now))

    def on_throttled(self, limit: str, delay_s: float) -> None:
        """Count a delay."""
        self.throttled_s += delay_s
        self._shared.add("throttled_us", int(delay_s * 1e6))
        self._counts.throttled_s[self.target.scope, limit] += delay_s  # type: ignore[assignment]

    def on_refused(self, limit: str) -> None:
        """Count a refusal."""
        self.refused_count += 1
        self._shared.add("refused", 1)
        self._counts.refused[self.target.scope, limit] += 1

    # Counts and storage.

    def connect(self) -> None:
        """
        Count a connection; call ``disconnect`` when it is lost.

        Raises:
            QuotaExceeded: There are as many as allowed; the connection is not counted.
        """
        self.check("connections")
        self.connections += 1
        self._shared.add("connections", 1)

    def disconnect(self) -> None:
        """Count a lost connection."""
        self.connections -= 1
        self._shared.add("connections", -1)

    def check(self, limit: str, more: int = 1) -> None:
        """
        Raise if there cannot be *more* of what *limit* limits.

        Raises:
            QuotaExceeded: There would be more than allowed.
        """
        self.check_count(limit, self.used(limit), more)

    def add(self, limit: str, change: int) -> None:
        """Count what was added or removed since the last measurement."""
        self._added[limit] += change
        self._shared.add(limit, change)

    def used(self, limit: str) -> int:
        """Return how much there is of what *limit* limits, in all processes."""
        others = self._shared.others(limit)
        if limit == "connections":
            return self.connections + others
        return max(0, self._measured[limit] + self._added[limit] + others)

    @property
    def is_used(self) -> bool:
        """Whether the principal has connections to this process, or sessions in it."""
        return self.connections > 0 or self._added["sessions"] > 0

    def release(self) -> None:
        """Forget the counts of this process, which the others read."""
        self._shared.release()

    def added(self) -> Counter[str]:
        """Return what was counted since the last measurement, which begins now."""
        return self._added.copy()

    def on_measured(
        self, measured: Counter[str], own: Counter[str], before: Counter[str]
    ) -> None:
        """
        Take over a measurement: *measured* by all processes, and *own* by this one.

        *before* is what ``added`` returned when it began.  What was added meanwhile may
        be counted twice until the next measurement.
        """
        self._measured = measured + own
        self._added.subtract(before)
        for limit in MEASURED:
            self._shared.put(limit, own[limit] + self._added[limit])

    def check_count(self, limit: str, used: int, more: int) -> None:
        """
        Raise if there cannot be *more* than *used* of what *limit* limits.

        Raises:
            QuotaExceeded: There would be more than allowed.
        """
        allowed = getattr(self.quota, limit)
        if not allowed or used + more <= allowed:
            return
        self.on_refused(limit)
        raise QuotaExceeded(
            f"the quota {limit} of {self.target} is {allowed}, and {used} are in use: "
            f"{REMEDIES[limit]}, or ask an administrator to raise it with 'danube "
            f"security quotas set'"
        )

    def _take(
        self, bucket: TokenBucket | None, limit: str, amount: int, now: float
    ) -> float:
        if bucket is None:
            return 0.0
        if self._shared.has_others:
            self._shared.add(limit, amount)
            bucket.take_past(self._shared.news(limit), now)
        bucket.take(amount, now)
        delay_s = bucket.delay_s(now)
        if delay_s > 0:
            self.on_throttled(limit, delay_s)
        return delay_s

    def _delay_s(self, bucket: TokenBucket | None, limit: str, now: float) -> float:
        if bucket is None:
            return 0.0
        if self._shared.has_others:
            bucket.take_past(self._shared.news(limit), now)
        return bucket.delay_s(now)


def take_out(meters: Iterable[QuotaMeter], byte_count: int, now: float) -> float:
    """Charge sent bytes to all *meters*; return the longest delay."""
    return max((each.take_out(byte_count, now) for each in meters), default=0.0)


def delay_out_s(meters: Iterable[QuotaMeter], now: float) -> float:
    """Return the seconds until all *meters* allow to send more."""
    return max((each.delay_out_s(now) for each in meters), default=0.0)


def credit_bytes_of(meters: Iterable[QuotaMeter], most: int) -> int:
    """
    Return how many bytes a consumer may be owed at a time, at most *most*.

    A limited consumer gets little at a time, so that its messages do not wait at the
    broker for longer than their timeout.
    """
    for meter in meters:
        if meter.bytes_out is not None:
            part = meter.bytes_out.capacity // _CREDITS_PER_S
            most = min(most, max(CREDIT_BYTES_MIN, part))
    return most


def _changed(bucket: TokenBucket | None, per_s: int, now: float) -> TokenBucket | None:
    if not per_s:
        return None
    if bucket is None:
        return TokenBucket(per_s, now)
    bucket.set_rate(per_s, now)
    return bucket


UNLIMITED = QuotaMeter(QuotaTarget(QuotaScope.PRINCIPAL, ""), QuotaCounts())
"""The meter of a client that is not known yet; never changed."""
