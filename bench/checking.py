"""
Whether what came is what was sent: nothing lost, nothing twice, nothing out of place.

Both checks look at whole arrays of headers, so that they cost a small part of what
receiving does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.payloads import PLACE_MASK, STREAM_SHIFT

PROBLEMS_TOLD = 3


class OrderCheck:
    """Each stream comes in its order, without gaps and repetitions."""

    def __init__(self, streams: int, ring: int, messages_per_stream: int) -> None:
        self._ring = ring
        self._wanted = messages_per_stream
        self._next = np.zeros(streams, np.int64)
        """The place that each stream is expected to go on with, counted on and on."""
        self.received = 0
        self.problems: list[str] = []
        self._problem_count = 0

    def add(self, headers: Any) -> None:
        """Take what came next."""
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
        """Take the next places of one stream, and go on behind whatever is wrong."""
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

    def want(self, messages_per_stream: int) -> None:
        """So many messages of each stream were sent, as is known now."""
        self._wanted = messages_per_stream

    def verdict(self) -> list[str]:
        """What is wrong; empty if every stream came once, in order, to its end."""
        told = list(self.problems)
        if self._problem_count > len(told):
            told.append(f"and {self._problem_count - len(told)} more")
        wanted = self._wanted * len(self._next)
        if self.received != wanted:
            told.insert(0, f"{self.received:,} of {wanted:,} messages came")
        return told


class UnionCheck:
    """Each message of one stream comes once, to whichever consumer, in any order."""

    def __init__(self, ring: int, messages: int) -> None:
        self._messages = messages
        self._counts = np.zeros(ring, np.int64)
        self.received = 0
        self._strangers = 0

    def add(self, headers: Any) -> None:
        """Take what one of the consumers was given."""
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

    def verdict(self) -> list[str]:
        """What is wrong; empty if each message came once."""
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
