"""
Decides which of several workers runs a stored connector.

Each worker decides for itself, from the names of the workers that are there: the
connector belongs to the worker with the highest hash of both names (rendezvous
hashing), so all agree, and a worker that comes or goes moves only its own share.  While
workers see different names, two may claim the same connector, and a lock at the broker
lets only one of them run it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b

ABSENT_S = 3.0
"""For how long a worker may be missing, such as while the broker moves the topic of
workers, until others take over what it has."""


class Assignment:
    """The connectors of one worker, as it sees the workers."""

    def __init__(self, worker: str, absent_s: float = ABSENT_S) -> None:
        self._worker = worker
        self._absent_s = absent_s
        self._seen_at: dict[str, float] = {}

    def on_workers(self, names: Iterable[str], now: float) -> None:
        """Note which workers are there *now*."""
        self._seen_at.update(dict.fromkeys(names, now))
        self._seen_at = {
            name: at for name, at in self._seen_at.items() if now - at < self._absent_s
        }

    @property
    def workers(self) -> Collection[str]:
        """The workers that are there, also the worker itself."""
        return self._seen_at.keys() | {self._worker}

    def owns(self, connector: str) -> bool:
        """Return whether the worker should run *connector*."""
        return owner_of(connector, self.workers) == self._worker


def owner_of(connector: str, workers: Collection[str]) -> str:
    """Return which of *workers* should run *connector*."""
    return max(workers, key=lambda worker: (_weight(connector, worker), worker))


def _weight(connector: str, worker: str) -> bytes:
    # Names have no line breaks.
    return blake2b(f"{worker}\n{connector}".encode(), digest_size=8).digest()
