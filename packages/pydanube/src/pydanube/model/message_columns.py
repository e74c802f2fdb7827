"""The messages of a batch as Python sequences, one for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pydanube.model.batch import Column, batch_of
from pydanube.model.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True, kw_only=True)
class MessageColumns:
    """
    The columns of a batch, all as long as ``payloads``, or None if there are none.

    Times are microseconds since 1970, UTC.
    """

    payloads: Sequence[bytes]
    publish_times: Sequence[int] | None = None
    keys: Sequence[bytes | None] | None = None
    attributes: Sequence[Mapping[str, str] | None] | None = None
    producers: Sequence[str | None] | None = None
    deliver_at: Sequence[int | None] | None = None
    expires_at: Sequence[int | None] | None = None

    def columns(self) -> int:
        """Return the columns that there are, as bits."""
        present = (c for c, name in FIELDS.items() if getattr(self, name) is not None)
        return sum(present)

    def map(self, function: Callable[[Sequence[Any]], Sequence[Any]]) -> MessageColumns:
        """Return what *function* makes of each of the columns."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        made: dict[str, Any] = {
            name: None if values is None else function(values)
            for name, values in found.items()
        }
        return MessageColumns(**made)

    def to_arrow(self) -> pa.RecordBatch:
        """
        Return the columns as a batch of the envelope.

        Raises:
            ValueError, TypeError: A value is not of its column's type.
        """
        return batch_of(
            self.payloads,
            keys=self.keys,
            attributes=self.attributes,
            publish_times=self.publish_times,
            producers=self.producers,
            deliver_at=self.deliver_at,
            expires_at=self.expires_at,
        )


FIELDS = {
    Column.PUBLISH_TIME: "publish_times",
    Column.KEY: "keys",
    Column.PAYLOAD: "payloads",
    Column.ATTRIBUTES: "attributes",
    Column.PRODUCER: "producers",
    Column.DELIVER_AT: "deliver_at",
    Column.EXPIRES_AT: "expires_at",
}
"""The fields of ``MessageColumns``, by their columns, in their order in a batch."""


def column_of(values: Sequence[Any]) -> Sequence[Any] | None:
    """Return *values*, or None if no message has one."""
    return None if values.count(None) == len(values) else values
