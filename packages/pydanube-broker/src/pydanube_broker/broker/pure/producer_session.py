"""
A producer's session on a topic: what it published before.

A producer numbers its messages.  The numbers make publishing idempotent: a batch that
is sent again, because its receipt was lost with a connection, is recognised,
acknowledged with its old offset, and not stored twice.  These decisions are pure; the
journal has the state on which they rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydanube.model.errors import BrokerError, OutOfSequence, ProducerFenced
from pydanube.model.ids import Epoch, ProducerId
from pydanube.model.ids import Sequence as SequenceNumber
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BatchHeader
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.storage.journal.state import ProducerState

OnPublished = Callable[["int | Sequence[int]", "BrokerError | None"], None]
"""
Called with the base offset when a batch is stored, or with the error.

If the batch has duplicates, it is called with the offset of each message.
"""


@dataclass(slots=True)
class ProducerSession(ProducerState):
    """The state of a named producer of one topic, with batches not committed yet."""

    registration: ProducerRegistration | None = None
    """Its registration while it is open; None if it is idle."""

    def begin_at(self, sequence: int) -> None:
        """Let a producer that has published nothing begin with *sequence*."""
        if not self.next_sequence and not self.runs:
            self.next_sequence = SequenceNumber(sequence)

    def admit(self, header: BatchHeader) -> int | None:
        """
        Return None if a batch is new, or the offset at which it is stored already.

        Raises:
            ProducerFenced: A newer session of this producer has been opened.
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

    def _find(self, base_sequence: int, count: int) -> int | None:
        for sequence, offset, length in reversed(self.runs):
            at = base_sequence - sequence
            if at >= 0 and at + count <= length:
                return offset + at
        return None


def open_session(
    name: str,
    before: ProducerState | None,
    *,
    resume: tuple[int, int],
    new_id: ProducerId,
    registration: ProducerRegistration | None = None,
) -> ProducerSession:
    """
    Return the session of a producer that opens as *name*.

    If *resume* is the id and epoch of the session *before*, that session continues
    after a broken connection.  Otherwise the epoch rises, which fences the earlier
    session.  In both cases the sequence numbers continue, so that none repeats.

    Raises:
        ProducerFenced: A newer session was opened after *resume*.
    """
    if before is None:
        return ProducerSession(name, new_id, Epoch(1), registration=registration)
    check_not_fenced(name, before, resume)
    is_continued = resume == (before.producer_id, before.epoch)
    return ProducerSession(
        name,
        before.producer_id,
        before.epoch if is_continued else Epoch(before.epoch + 1),
        before.next_sequence,
        before.runs.copy(),
        registration,
    )


def check_not_fenced(name: str, before: ProducerState, resume: tuple[int, int]) -> None:
    """Raise ProducerFenced if *before* is a newer session than *resume*."""
    producer_id, epoch = resume
    if producer_id and (producer_id != before.producer_id or epoch < before.epoch):
        raise ProducerFenced(
            f"another producer named {name} was opened while the connection of this "
            "one was lost"
        )
