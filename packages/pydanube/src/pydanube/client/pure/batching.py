"""Converting and checking what users publish, before it is sent.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from reprlib import Repr
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

from pydanube.client.pure.outgoing import (
    DeliveryWindow,
    OutgoingBatch,
    arrow_batches,
    outgoing,
)
from pydanube.model.arguments import check
from pydanube.model.arrow import is_arrow
from pydanube.model.errors import InvalidRequest, MessageTooLarge
from pydanube.model.message_columns import MessageColumns
from pydanube.model.positions import TIME_MAX, TIME_MIN, to_microseconds
from pydanube.wire.batches import BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

Keys: TypeAlias = Sequence[str | bytes | None] | None
"""The key of each message; None: no message has one."""
ManyAttributes: TypeAlias = Sequence[Mapping[str, str] | None] | None
"""The attributes of each message; None: no message has any."""

WINDOW_BYTES = 16

_SHORTENER = Repr()
_SHORTENER.maxstring = _SHORTENER.maxother = 60


class DeliveryOptions(TypedDict, total=False):
    """The delivery window as users give it, relative to now."""

    deliver_after_s: float | None
    deliver_at: datetime | float | None
    ttl_s: float | None


class SendOptions(DeliveryOptions, total=False):
    """The options of one message."""

    key: str | bytes | None
    attributes: Mapping[str, str] | None
    id: str | None


def parse_delivery(now: int, options: DeliveryOptions) -> DeliveryWindow | None:
    """
    Return the delivery window that a user's *options* describe; see there.

    Raises:
        InvalidRequest: As ``delivery_window``; or an option is unknown, or of a wrong
            type.
    """
    try:
        return delivery_window(now, **options)
    except TypeError:
        for name in options.keys() - DeliveryOptions.__annotations__.keys():
            hint = "; attributes={…} holds names and values of your own"
            raise InvalidRequest(
                f"{name} is not an option of a message: the options are "
                f"{', '.join(SendOptions.__annotations__)}"
                f"{hint if name in _OTHER_NAMES else ''}"
            ) from None
        check(DeliveryOptions, options)
        raise


_OTHER_NAMES = frozenset({"headers", "properties", "metadata"})
"""The names of attributes in other messaging systems."""


def delivery_window(
    now: int,
    *,
    deliver_after_s: float | None = None,
    deliver_at: datetime | float | None = None,
    ttl_s: float | None = None,
) -> DeliveryWindow | None:
    """
    Return the delivery window of a message that is published at *now*.

    Times are in microseconds since 1970.  Returns None if no option is given.

    Raises:
        InvalidRequest: The options contradict each other, or are out of range.
    """
    if deliver_after_s is None and deliver_at is None and ttl_s is None:
        return None
    due = None
    if deliver_after_s is not None:
        if deliver_at is not None:
            raise InvalidRequest(
                "a message has deliver_after_s or deliver_at, not both"
            )
        if not deliver_after_s >= 0:
            raise InvalidRequest(f"deliver_after_s is not negative: {deliver_after_s}")
        due = now + _microseconds("deliver_after_s", deliver_after_s)
    elif deliver_at is not None:
        due = to_microseconds(deliver_at)
    expires = None
    if ttl_s is not None:
        if not ttl_s > 0:
            raise InvalidRequest(f"ttl_s is more than 0: {ttl_s}")
        expires = now + _microseconds("ttl_s", ttl_s)
    for time in (due, expires):
        if time is not None and not TIME_MIN <= time <= TIME_MAX:
            raise InvalidRequest("a time is between the years 1 and 9999")
    if due is not None and expires is not None and due >= expires:
        raise InvalidRequest("the message would expire before it may be delivered")
    return DeliveryWindow(due, expires)


def batches_of(
    messages: Sequence[bytes | str] | pa.RecordBatch | pa.Table,
    window: DeliveryWindow | None,
    *,
    keys: Keys = None,
    attributes: ManyAttributes = None,
) -> list[OutgoingBatch]:
    """
    Convert what a user publishes to message batches, all with *window*.

    *keys* and *attributes* are those of each payload.

    Raises:
        InvalidRequest: *messages* are neither payloads nor Arrow data with the columns
            of messages; or there are not as many keys or attributes as payloads.
    """
    batches: list[OutgoingBatch]
    if is_arrow(messages):
        if keys is not None or attributes is not None:
            raise InvalidRequest(
                "keys and attributes of Arrow data are its columns key and attributes"
            )
        batches = arrow_batches(cast("pa.Table", messages))
    else:
        check_are_many("send_batch", "payloads", messages)
        payloads = [
            each if type(each) is bytes else to_bytes("payload", each)
            for each in messages
        ]
        batches = [_batch_of(payloads, keys, attributes)] if payloads else []
    if window is not None:
        batches = [each.with_window(window) for each in batches]
    return batches


def _batch_of(
    payloads: list[bytes], keys: Keys, attributes: ManyAttributes
) -> OutgoingBatch:
    for what, given in (("keys", keys), ("attributes", attributes)):
        if given is None:
            continue
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
            raise InvalidRequest(
                f"{what} is a list with one entry for each message, not "
                f"{type(given).__name__}"
            )
        if len(given) != len(payloads):
            raise InvalidRequest(f"{len(given)} {what} for {len(payloads)} payloads")
    encoded = None
    if keys is not None:
        encoded = [None if key is None else to_bytes("key", key) for key in keys]
    for each in attributes or ():
        check_attributes(each or {})
    return outgoing(
        MessageColumns(payloads=payloads, keys=encoded, attributes=attributes)
    )


def cut(batch: OutgoingBatch, bytes_max: int) -> list[OutgoingBatch]:
    """
    Split *batch* into pieces that fit into frames of *bytes_max*.

    No piece has more than ``BATCH_MESSAGES_MAX`` messages.

    Raises:
        MessageTooLarge: A single message does not fit.
    """
    byte_count, count = batch.byte_count + 512, batch.count
    if byte_count <= bytes_max and 0 < count <= BATCH_MESSAGES_MAX:
        return [batch]
    if count == 0:
        return []
    if count == 1:
        raise MessageTooLarge(
            f"a message of {byte_count} bytes; the broker accepts batches of at most "
            f"{bytes_max} bytes"
        )
    half = count // 2
    left, right = batch.slice(0, half), batch.slice(half, count)
    return cut(left, bytes_max) + cut(right, bytes_max)


def to_bytes(what: str, value: object) -> bytes:
    """
    Return *value*, the *what* of a message, as bytes; text becomes UTF-8.

    Raises:
        InvalidRequest: *value* is neither bytes nor text.
    """
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    hint = "; a producer with a schema publishes values" if what == "payload" else ""
    raise InvalidRequest(f"a {what} is bytes or str, not {type(value).__name__}{hint}")


def check_are_many(function: str, what: str, messages: object) -> None:
    """
    Raise unless *messages*, the argument of *function*, are several.

    Raises:
        InvalidRequest: They are one payload, or nothing that can be published.
    """
    if isinstance(messages, str | bytes | bytearray | memoryview):
        raise InvalidRequest(
            f"{function} publishes many messages, and {_SHORTENER.repr(messages)} is "
            f"one: pass a list of {what}, or use send"
        )
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest(
            f"{function} publishes a list of {what} or Arrow data, not "
            f"{type(messages).__name__}"
        )


def check_attributes(attributes: Mapping[str, str]) -> int:
    """
    Return an upper bound of the bytes that *attributes* take.

    Raises:
        InvalidRequest: A name or a value is not text.
    """
    byte_count = 0
    try:
        items = attributes.items()
    except AttributeError:
        check(SendOptions, {"attributes": attributes})
        raise
    for name, value in items:
        if type(name) is not str or type(value) is not str:
            raise InvalidRequest(
                "attributes are a mapping of str to str; this one has "
                f"{name!r}: {_SHORTENER.repr(value)} ({type(value).__name__})"
            )
        byte_count += 4 * (len(name) + len(value)) + 8
    return byte_count


def _microseconds(what: str, seconds: float) -> int:
    try:
        return round(seconds * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest(
            f"{what} is a number of seconds, not {seconds!r}"
        ) from None
