"""
Holds on the segments that queries of this process read.

A hold lasts for HOLD_S after it was taken and after the last job of the application.
The broker is told to release it soon after that, so nothing stays if the process is
killed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydanube.model.errors import BrokerError, Unavailable

if TYPE_CHECKING:
    from pydanube.sync import Client

log = logging.getLogger(__name__)

HOLD_S = 3600.0
"""How long segments stay that are not read."""
LEASE_S = 900.0
"""How long the broker keeps a hold that is not renewed."""
REQUESTS_MAX = 16
"""How many topics are held at the same time."""
RENEWALS = 3
"""How often a hold is renewed in that time."""
END_S = 5.0
"""How long the end of the process waits for brokers to release holds."""

NAME = f"spark-{uuid4().hex[:12]}"
"""The name of this process's holds; each topic has one at most."""


@dataclass
class SegmentHolds:
    """The holds of a process; ``renew`` is to be called LEASE_S / RENEWALS apart."""

    clock: Callable[[], float] = time.monotonic
    _held: dict[tuple[str, str], tuple[Client, float]] = field(default_factory=dict)
    """The client and the end of each hold, by the URL and the topic."""

    def add(
        self, client: Client, url: str, topics: Iterable[str]
    ) -> BrokerError | None:
        """Hold *topics*; return why the first that cannot be held is not held."""
        end = self.clock() + HOLD_S
        wanted = list(topics)
        new = [topic for topic in wanted if (url, topic) not in self._held]
        errors = dict(
            zip(new, _hold_all((client, topic) for topic in new), strict=True)
        )
        for topic in wanted:
            if errors.get(topic) is None:
                self._held[url, topic] = client, end
        return next((each for each in errors.values() if each is not None), None)

    def renew(self, *, is_used: bool) -> None:
        """Hold the topics again whose time is not over, and release the others."""
        now = self.clock()
        if is_used:
            for key, (client, _) in self._held.items():
                self._held[key] = client, now + HOLD_S
        going_on = [key for key, (_, end) in self._held.items() if now < end]
        answers = _hold_all((self._held[key][0], key[1]) for key in going_on)
        errors = dict(zip(going_on, answers, strict=True))
        for key, (_, end) in list(self._held.items()):
            error = errors.get(key)
            if isinstance(error, Unavailable):
                # The broker keeps the hold for the rest of LEASE_S.
                log.warning("%s is to be held again later: %s", key[1], error)
                continue
            if error is not None:
                log.warning("%s is not held any longer: %s", key[1], error)
            if now >= end or error is not None:
                self._release(key)

    def release(self) -> None:
        """Release all holds; those of a broker that does not answer are left to it."""
        unanswered = set()
        for key in list(self._held):
            url, _ = key
            if url in unanswered:
                del self._held[key]
            elif isinstance(self._release(key), Unavailable):
                unanswered.add(url)

    @property
    def topics(self) -> list[str]:
        """The topics that are held."""
        return [topic for _, topic in self._held]

    def _release(self, key: tuple[str, str]) -> BrokerError | None:
        """Release a hold; return why the broker does not, which it does soon anyway."""
        client, _ = self._held.pop(key)
        try:
            client.topics.release(key[1], NAME)
        except BrokerError as error:
            return error
        return None


def _hold_all(holds: Iterable[tuple[Client, str]]) -> list[BrokerError | None]:
    """Hold topics, each with its client, at the same time; see ``_hold``."""
    with ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="hold") as threads:
        return list(threads.map(lambda each: _hold(*each), holds))


def _hold(client: Client, topic: str) -> BrokerError | None:
    """Hold *topic*; return why it cannot be held."""
    try:
        client.topics.hold(topic, NAME, "read by Spark", expires_in_s=LEASE_S)
    except BrokerError as error:
        return error
    return None


class HoldKeeper:
    """
    The holds of a process, and the thread that renews them while there are any.

    Args:
        renew_s: The time between renewals.
        end_s: How long ``end`` waits for the broker at most.
    """

    def __init__(
        self, *, renew_s: float = LEASE_S / RENEWALS, end_s: float = END_S
    ) -> None:
        self._renew_s = renew_s
        self._end_s = end_s
        self._holds = SegmentHolds()
        self._lock = threading.Lock()
        self._context: Any = None
        """The newest application, whose jobs may read the segments."""
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()

    def hold(
        self, context: Any, client: Client, url: str, topics: Iterable[str]
    ) -> BrokerError | None:
        """Hold *topics* for *context*; return why one of them cannot be held."""
        with self._lock:
            error = self._holds.add(client, url, topics)
            self._context = context
            if self._thread is None and self._holds.topics:
                self._thread = threading.Thread(
                    target=self._keep, name="segment-holds", daemon=True
                )
                self._thread.start()
                # It runs before clients are closed, which registered before.
                atexit.unregister(self.end)
                atexit.register(self.end)
            return error

    def end(self) -> None:
        """Release all holds, unless brokers take longer than *end_s* to answer."""
        self._is_ending.set()
        thread = self._thread
        if thread is not None:
            thread.join(self._end_s)

    def _keep(self) -> None:
        """Renew the holds until the application ends, or there are none."""
        while True:
            self._is_ending.wait(self._renew_s)
            with self._lock:
                try:
                    jobs = self._context.statusTracker().getActiveJobsIds()
                except Exception:  # noqa: BLE001  # The application has ended.
                    jobs = None
                if jobs is None or self._is_ending.is_set():
                    self._holds.release()
                else:
                    self._holds.renew(is_used=bool(jobs))
                if not self._holds.topics:
                    self._thread = None
                    return


_keeper = HoldKeeper()


def hold_segments(
    spark: Any, client: Client, url: str, topics: Iterable[str]
) -> BrokerError | None:
    """
    Hold the segments of *topics* while the application of *spark* may read them.

    Return why one of them cannot be held.
    """
    return _keeper.hold(spark.sparkContext, client, url, topics)
