"""
Who may publish to a topic, and what was published before.

A producer counts its messages.  The count makes publishing idempotent: a batch
that is sent again, because its receipt was lost with a connection, is
recognised, acknowledged with its old offset and not stored twice.  The decision
is pure; the journal keeps what it rests on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydanube.model.errors import OutOfSequence, ProducerFenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.broker.producer_registrations import ProducerRegistration
    from pydanube.model.errors import BrokerError
    from pydanube.wire.batches import BatchHeader

RUNS_MAX = 512
"""How many batches a producer may have in flight and still be recognised."""

OnPublished = Callable[[int, "BrokerError | None"], None]
"""Called with the base offset when a batch is stored, or with the error."""

Run = tuple[int, int, int]
"""Messages whose offset and sequence differ by the same: sequence, offset, count."""


@dataclass(slots=True)
class ProducerSession:
    """A named producer of one topic, as it is known at the moment."""

    name: str
    producer_id: int
    epoch: int
    next_sequence: int = 0
    runs: deque[Run] = field(default_factory=deque)
    registration: ProducerRegistration | None = None
    """What it has while somebody has it open; None for one that is only known."""

    def admit(self, header: BatchHeader) -> int | None:
        """
        Decide about a batch: None to store it, else the offset it already has.

        Raises:
            ProducerFenced: A newer producer of this name has been opened.
            OutOfSequence: The batch does not begin where the last one ended.
        """
        if (
            header.producer_epoch != self.epoch
            or header.producer_id != self.producer_id
        ):
            raise ProducerFenced(
                f"producer {self.name} has epoch {self.epoch}, the batch has "
                f"{header.producer_epoch}"
            )
        if header.base_sequence == self.next_sequence:
            return None
        known = self._find(header.base_sequence, header.count)
        if known is None:
            raise OutOfSequence(
                f"producer {self.name} sent sequence {header.base_sequence}; "
                f"{self.next_sequence} was expected"
            )
        return known

    def record(self, base_sequence: int, base_offset: int, count: int) -> None:
        """The batch was given its offset."""
        self.next_sequence = base_sequence + count
        if self.runs:
            sequence, offset, length = self.runs[-1]
            if (sequence + length, offset + length) == (base_sequence, base_offset):
                self.runs[-1] = (sequence, offset, length + count)
                return
        self.runs.append((base_sequence, base_offset, count))
        if len(self.runs) > RUNS_MAX:
            self.runs.popleft()

    def _find(self, base_sequence: int, count: int) -> int | None:
        for sequence, offset, length in reversed(self.runs):
            at = base_sequence - sequence
            if at >= 0 and at + count <= length:
                return offset + at
        return None


def open_session(
    name: str,
    before: ProducerSession | None,
    *,
    resume: tuple[int, int],
    new_id: int,
    registration: ProducerRegistration | None = None,
) -> ProducerSession:
    """
    The session of a producer that opens under *name*.

    Whoever names the id and epoch of the session *before* continues it (its
    connection broke); anybody else gets a higher epoch, which fences the old
    one.  The sequence goes on in both cases, so that it never repeats.
    """
    if before is None:
        return ProducerSession(name, new_id, epoch=1, registration=registration)
    is_continued = resume == (before.producer_id, before.epoch)
    return ProducerSession(
        name,
        before.producer_id,
        before.epoch if is_continued else before.epoch + 1,
        before.next_sequence,
        before.runs,
        registration,
    )


def restore_session(
    name: str, producer_id: int, epoch: int, next_sequence: int, runs: Iterable[Run]
) -> ProducerSession:
    """A session as the journal remembers it; nobody has it open."""
    return ProducerSession(name, producer_id, epoch, next_sequence, deque(runs))
