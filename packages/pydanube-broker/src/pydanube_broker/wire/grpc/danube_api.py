"""
Conversions between messages of Danube's client services and types of the model.

Danube's names of the members of enums are ours, written as ``KeyShared`` for
``KEY_SHARED``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from pydanube.model.batch import Column, attributes_of
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
) -> Iterator[pb.StreamMessage]:
    """
    Yield the messages of *frame* one by one, as a slow consumer takes them.

    ``topic_offset`` is 0 unless the topic *is_reliable*; clients distinguish the two
    kinds of topics by it.
    """
    header = frame.header

    def message_of(
        payload: bytes, publish_time: int, producer: str, offset: int
    ) -> pb.StreamMessage:
        message = pb.StreamMessage(
            # The broker does not keep the producer's request id.
            request_id=offset,
            msg_id=pb.MsgID(
                producer_id=producer_id_of(producer),
                topic_name=topic,
                broker_addr=broker_url,
                topic_offset=offset if is_reliable else 0,
            ),
            payload=payload,
            publish_time=max(0, publish_time // 1000),
            producer_name=producer,
        )
        # Clients check whether these fields are present, so 0 must not be set.
        if header.schema_id:
            message.schema_id = header.schema_id
        if header.schema_version:
            message.schema_version = header.schema_version
        return message

    small = frame.decode_small_batch() if frame.count == 1 else None
    if small is not None and not small.times:
        # To decode a single payload takes less time without Arrow.
        yield message_of(
            small.data.tobytes(),
            header.first_publish_time,
            header.producer,
            header.base_offset,
        )
        return
    batch = frame.arrow()
    columns = header.columns
    count = header.count

    def values(column: Column, name: str) -> Sequence[Any] | None:
        return batch.column(name).to_pylist() if columns & column else None

    offsets = values(Column.OFFSET, "offset") or range(
        header.base_offset, header.base_offset + count
    )
    producers = values(Column.PRODUCER, "producer")
    keys = values(Column.KEY, "key")
    attributes = values(Column.ATTRIBUTES, "attributes")
    payloads = batch.column("payload")
    times = (
        batch.column("publish_time").cast(pa.int64()).to_pylist()
        if columns & Column.PUBLISH_TIME
        else None
    )
    for at, offset in enumerate(offsets):
        name = header.producer if producers is None else producers[at] or ""
        time = header.first_publish_time if times is None else times[at]
        message = message_of(payloads[at].as_py(), time, name, offset)
        if attributes is not None:
            message.attributes.update(attributes_of(attributes[at]))
        if keys is not None and keys[at] is not None:
            _add_key(message, keys[at])
        yield message


def _add_key(message: pb.StreamMessage, key: bytes) -> None:
    try:
        message.routing_key = key.decode()
    except UnicodeDecodeError:
        message.attributes[BINARY_KEY_ATTRIBUTE] = b64encode(key).decode()
