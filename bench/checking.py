"""
The checks of received messages: none lost, none repeated, none reordered.

Both checks work on arrays of headers, so that they cost little compared with receiving.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.payloads import PLACE_MASK, STREAM_SHIFT

PROBLEMS_TOLD = 3


class OrderCheck:
    """The check that each stream is ordered, without gaps and repetitions."""

    def __init__(self, streams: int, ring: int, messages_per_stream: int) -> None:
        self._ring = ring
        self._wanted = messages_per_stream
        self._next = np.zeros(streams, np.int64)
        """The next expected sequence number of each stream, without wrapping."""
        self.received = 0
        self.problems: list[str] = []
        self._problem_count = 0

    def add(self, headers: Any) -> None:
        """Check the next messages."""
        places = headers["place"]
        count = len(places)
        self.received += count
        first = int(places[0])
        if len(self._next) == 1 and first >> STREAM_SHIFT == 0:
            expected = (np.arange(count) + self._next[0]) % self._ring
            if np.array_equal(places, expected):
                self._next[0] += count
                return
        streams = (places >> STREAM_SHIFT).astype(np.int64)
        if streams.max() >= len(self._next):
            self._complain(f"a message of an unknown stream {streams.max()}")
            return
        order = np.argsort(streams, kind="stable")
        sorted_streams = streams[order]
        begins = np.flatnonzero(np.diff(sorted_streams, prepend=-1))
        lengths = np.diff(begins, append=count)
        came = (places[order] & PLACE_MASK).astype(np.int64)
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
            self._take(int(sorted_streams[begin]), came[begin : begin + length])

    def _take(self, stream: int, came: Any) -> None:
        """Check the next messages of one stream, and continue after problems."""
        while len(came):
            expected = (np.arange(len(came)) + self._next[stream]) % self._ring
            wrong = np.flatnonzero(came != expected)
            if not len(wrong):
                self._next[stream] += len(came)
                return
            at = int(wrong[0])
            self._next[stream] += at
            self._break(stream, int(came[at]))
            came = came[at + 1 :]

    def _break(self, stream: int, place: int) -> None:
        expected = int(self._next[stream])
        ahead = (place - expected) % self._ring
        if ahead < self._ring - ahead:
            what = f"{ahead} lost or late"
            self._next[stream] += ahead + 1
        else:
            what = "repeated or late"
        self._complain(
            f"stream {stream}: place {place} came, not {expected % self._ring}: {what}"
        )

    def _complain(self, problem: str) -> None:
        self._problem_count += 1
        if len(self.problems) < PROBLEMS_TOLD:
            self.problems.append(problem)

    def expect(self, messages_per_stream: int) -> None:
        """Set the number of messages of each stream."""
        self._wanted = messages_per_stream

    def find_problems(self) -> list[str]:
        """Return the problems; empty if every stream is complete and ordered."""
        told = list(self.problems)
        if self._problem_count > len(told):
            told.append(f"and {self._problem_count - len(told)} more")
        wanted = self._wanted * len(self._next)
        if self.received != wanted:
            told.insert(0, f"{self.received:,} of {wanted:,} messages came")
        return told


class UnionCheck:
    """The check that all consumers together receive each message once."""

    def __init__(self, ring: int, messages: int) -> None:
        self._messages = messages
        self._counts = np.zeros(ring, np.int64)
        self.received = 0
        self._strangers = 0

    def add(self, headers: Any) -> None:
        """Add messages that a consumer received."""
        places = headers["place"].astype(np.int64)
        self.received += len(places)
        known = places < len(self._counts)
        if not known.all():
            self._strangers += int((~known).sum())
            places = places[known]
        if not len(places):
            return
        low, high = int(places.min()), int(places.max())
        if high - low < 8 * len(places):
            self._counts[low : high + 1] += np.bincount(
                places - low, minlength=high - low + 1
            )
        else:
            np.add.at(self._counts, places, 1)

    def find_problems(self) -> list[str]:
        """Return the problems; empty if each message was received once."""
        laps, rest = divmod(self._messages, len(self._counts))
        expected = np.full(len(self._counts), laps)
        expected[:rest] += 1
        difference = self._counts - expected
        missing = -int(difference[difference < 0].sum())
        repeated = int(difference[difference > 0].sum())
        told = []
        if missing:
            told.append(f"{missing:,} of {self._messages:,} messages did not come")
        if repeated:
            told.append(f"{repeated:,} messages came more than once")
        if self._strangers:
            told.append(f"{self._strangers:,} messages were never sent")
        return told
