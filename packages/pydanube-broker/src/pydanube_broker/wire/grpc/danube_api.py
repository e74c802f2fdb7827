"""
Conversions between messages of Danube's client services and types of the model.

Danube's names of the members of enums are ours, written as ``KeyShared`` for
``KEY_SHARED``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import repeat
from typing import Any, TypeVar

import pyarrow as pa

from pydanube.model.batch import NAMES, Column, attributes_of
from pydanube.model.errors import InvalidRequest
from pydanube.wire.batches import BatchFrame
from pydanube.wire.pb import danube_api_pb2 as pb

E = TypeVar("E", bound=Enum)

BINARY_KEY_ATTRIBUTE = "x-routing-key-base64"
"""
The attribute that holds a routing key that is not UTF-8.

Our keys are bytes; Danube's are text.  Replacing invalid bytes would make different
keys equal, so such a key is sent as an attribute.
"""

PAYLOADS_AT_ONCE = 64
"""How many messages of a batch are decoded at a time, as a slow consumer takes them."""


def danube_name(member: Enum) -> str:
    """Return Danube's name of *member*."""
    return member.name.title().replace("_", "")


def number_of(member: Enum, danube_enum: Any) -> Any:
    """Return the number of *member* in *danube_enum*."""
    return danube_enum.Value(danube_name(member))


def member_of(enum: type[E], danube_enum: Any, number: int, problem: str) -> E:
    """
    Return the member of *enum* that has this number in *danube_enum*.

    Raises:
        InvalidRequest: There is none; the text is *problem* and the number.
    """
    members = {danube_name(member): member for member in enum}
    try:
        return members[danube_enum.Name(number)]
    except ValueError:
        raise InvalidRequest(f"{problem} {number}") from None


def publish_time_from_wire(message: pb.StreamMessage, now_us: int) -> int:
    """Return the publish time in microseconds, or *now_us* if *message* has none."""
    return message.publish_time * 1000 or now_us


def key_from_wire(message: pb.StreamMessage) -> bytes | None:
    return message.routing_key.encode() if message.HasField("routing_key") else None


def messages_to_wire(
    frame: BatchFrame,
    *,
    topic: str,
    broker_url: str,
    producer_id_of: Callable[[str], int],
    is_reliable: bool = True,
) -> Iterator[bytes]:
    """
    Yield each message of *frame* as an encoded ``StreamMessage``.

    ``topic_offset`` is 0 unless the topic *is_reliable*; clients distinguish the two
    kinds of topics by it.

    Bounds: The payloads of ``PAYLOADS_AT_ONCE`` messages, or of a small batch, are
        copied in advance.
    """
    header = frame.header
    # Most fields are the same in all messages, so one object encodes all of them.
    message = pb.StreamMessage(
        msg_id=pb.MsgID(topic_name=topic, broker_addr=broker_url)
    )
    # Clients check whether these fields are present, so 0 must not be set.
    if header.schema_id:
        message.schema_id = header.schema_id
    if header.schema_version:
        message.schema_version = header.schema_version
    has_attributes = bool(header.columns & Column.ATTRIBUTES)
    msg_id, serialize = message.msg_id, message.SerializeToString
    producer: str | None = None
    for offset, payload, time, name, key, attributes in _rows_of(frame):
        if name != producer:
            producer = message.producer_name = name
            msg_id.producer_id = producer_id_of(name)
        # The broker does not keep the producer's request id.
        message.request_id = offset
        if is_reliable:
            msg_id.topic_offset = offset
        message.payload = payload
        message.publish_time = max(0, time // 1000)
        if has_attributes:
            message.attributes.clear()
            message.attributes.update(attributes_of(attributes))
        if key is None:
            yield serialize()
        else:
            _add_key(message, key)
            yield serialize()
            _remove_key(message)


_Row = tuple[int, bytes, int, str, bytes | None, Any]


def _rows_of(frame: BatchFrame) -> Iterator[_Row]:
    """Yield the offset, payload, time, producer, key and attributes of each message."""
    header = frame.header
    offsets = range(header.base_offset, header.base_offset + header.count)
    # To decode a few payloads takes less time without Arrow.
    small = frame.decode_small_batch()
    if small is not None:
        times = small.times or repeat(header.first_publish_time)
        for offset, payload, time in zip(
            offsets, small.payloads(), times, strict=False
        ):
            yield offset, payload, time, header.producer, None, None
        return
    batch, columns = frame.arrow(), header.columns

    def values(column: Column, default: Any) -> Iterable[Any]:
        """Return the values of *column* in the current rows, or endless defaults."""
        if not columns & column:
            return repeat(default)
        found = rows.column(NAMES[column])
        if column is Column.PUBLISH_TIME:
            # A cast takes ten times as long.
            found = found.view(pa.int64())
        return found.to_pylist()  # type: ignore[no-any-return]

    for at in range(0, header.count, PAYLOADS_AT_ONCE):
        rows = batch.slice(at, PAYLOADS_AT_ONCE)
        for offset, payload, time, producer, key, attributes in zip(
            values(Column.OFFSET, None)
            if columns & Column.OFFSET
            else offsets[at : at + PAYLOADS_AT_ONCE],
            values(Column.PAYLOAD, b""),
            values(Column.PUBLISH_TIME, header.first_publish_time),
            values(Column.PRODUCER, header.producer),
            values(Column.KEY, None),
            values(Column.ATTRIBUTES, None),
            strict=False,
        ):
            yield offset, payload, time, producer or "", key, attributes


def _add_key(message: pb.StreamMessage, key: bytes) -> None:
    try:
        message.routing_key = key.decode()
    except UnicodeDecodeError:
        message.attributes[BINARY_KEY_ATTRIBUTE] = b64encode(key).decode()


def _remove_key(message: pb.StreamMessage) -> None:
    message.ClearField("routing_key")
    message.attributes.pop(BINARY_KEY_ATTRIBUTE, None)
