"""Messages of Danube's client services are converted to and from the model."""

from __future__ import annotations

import pytest

from pydanube.model.batch import Column, batch_of
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import DispatchMode, ProducerAccess, SubscriptionType
from pydanube.wire.batches import BatchHeader, encode, encode_payloads
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.wire.grpc.danube_api import (
    BINARY_KEY_ATTRIBUTE,
    key_from_wire,
    member_of,
    messages_to_wire,
    number_of,
    publish_time_from_wire,
)

TOPIC = "/default/orders"
URL = "http://broker:6650"
AT_US = 1_700_000_000_123_456


def header(**fields) -> BatchHeader:
    common = {
        "count": 1,
        "columns": Column.PAYLOAD,
        "first_publish_time": AT_US,
        "last_publish_time": AT_US,
        "producer": "p",
        "base_offset": 40,
    }
    return BatchHeader(**common | fields)


def sent(frame, *, is_reliable: bool = True) -> list[pb.StreamMessage]:
    messages = messages_to_wire(
        frame,
        topic=TOPIC,
        broker_url=URL,
        producer_id_of=len,
        is_reliable=is_reliable,
    )
    return [pb.StreamMessage.FromString(each) for each in messages]


def test_single_message_has_all_fields_that_clients_read():
    [message] = sent(encode_payloads([b"hello"], header()))
    assert message == pb.StreamMessage(
        request_id=40,
        msg_id=pb.MsgID(
            producer_id=1, topic_name=TOPIC, broker_addr=URL, topic_offset=40
        ),
        payload=b"hello",
        publish_time=1_700_000_000_123,
        producer_name="p",
    )


def test_message_of_a_non_reliable_topic_has_offset_zero():
    for payloads in ([b"alone"], [b"one", b"two", b"three"]):
        messages = sent(encode_payloads(payloads, header()), is_reliable=False)
        ids = [(each.request_id, each.msg_id.topic_offset) for each in messages]
        assert ids == [(40 + at, 0) for at in range(len(payloads))]


def test_missing_fields_of_a_message_are_absent():
    frames = [
        encode_payloads([b"hello"], header()),
        encode(batch_of([b"hello"], attributes=[{"a": "b"}]), header()),
    ]
    for frame in frames:
        [message] = sent(frame)
        for name in ("schema_id", "schema_version", "routing_key"):
            assert not message.HasField(name)


def test_message_names_the_schema_of_its_batch():
    for frame in (
        encode_payloads([b"hello"], header(schema_id=7, schema_version=2)),
        encode(batch_of([b"a"], keys=[b"k"]), header(schema_id=7, schema_version=2)),
    ):
        [message] = sent(frame)
        assert (message.schema_id, message.schema_version) == (7, 2)


def test_a_batch_is_sent_message_by_message():
    batch = batch_of(
        [b"one", b"", b"three"],
        keys=[b"k", None, "ключ".encode()],
        attributes=[None, {"a": "1", "b": ""}, {}],
        publish_times=[AT_US, AT_US + 1000, AT_US + 2000],
        producers=["p", "other", None],
    )
    messages = sent(encode(batch, header(producer="")))
    assert [message.payload for message in messages] == [b"one", b"", b"three"]
    assert [message.msg_id.topic_offset for message in messages] == [40, 41, 42]
    assert [message.publish_time % 1000 for message in messages] == [123, 124, 125]
    assert [message.producer_name for message in messages] == ["p", "other", ""]
    assert [message.msg_id.producer_id for message in messages] == [1, 5, 0]
    assert [dict(message.attributes) for message in messages] == [
        {},
        {"a": "1", "b": ""},
        {},
    ]
    keys = [
        (message.HasField("routing_key"), message.routing_key) for message in messages
    ]
    assert keys == [(True, "k"), (False, ""), (True, "ключ")]


def test_messages_with_gaps_have_their_own_offsets():
    frame = encode(batch_of([bytes([n]) for n in range(6)]), header())
    messages = sent(frame.take([(41, 43), (45, 46)]))
    assert [message.msg_id.topic_offset for message in messages] == [41, 42, 45]
    assert [message.payload for message in messages] == [b"\x01", b"\x02", b"\x05"]


def test_key_that_is_not_utf8_is_sent_as_attribute():
    batch = batch_of([b"a"], keys=[b"\xff\x00"], attributes=[{"x": "y"}])
    [message] = sent(encode(batch, header()))
    assert not message.HasField("routing_key")
    assert dict(message.attributes) == {"x": "y", BINARY_KEY_ATTRIBUTE: "/wA="}


def test_a_time_before_1970_is_sent_as_1970():
    [message] = sent(encode_payloads([b"a"], header(first_publish_time=-1_000_000)))
    assert message.publish_time == 0


def test_a_message_without_a_time_was_published_now():
    assert publish_time_from_wire(pb.StreamMessage(), AT_US) == AT_US
    dated = pb.StreamMessage(publish_time=5)
    assert publish_time_from_wire(dated, AT_US) == 5000


def test_an_empty_key_is_a_key():
    assert key_from_wire(pb.StreamMessage()) is None
    assert key_from_wire(pb.StreamMessage(routing_key="")) == b""
    assert key_from_wire(pb.StreamMessage(routing_key="ключ")) == "ключ".encode()


@pytest.mark.parametrize(
    ("danube_enum", "members"),
    [
        (
            pb.ConsumerRequest.SubscriptionType,
            [
                SubscriptionType.EXCLUSIVE,
                SubscriptionType.SHARED,
                SubscriptionType.FAILOVER,
                SubscriptionType.KEY_SHARED,
            ],
        ),
        (pb.DispatchStrategy, [DispatchMode.NON_RELIABLE, DispatchMode.RELIABLE]),
        (pb.ProducerAccessMode, [ProducerAccess.SHARED, ProducerAccess.EXCLUSIVE]),
    ],
)
def test_numbers_map_to_members(danube_enum, members):
    enum = type(members[0])
    numbers = range(len(members))
    assert [member_of(enum, danube_enum, each, "") for each in numbers] == members
    assert [number_of(each, danube_enum) for each in members] == list(numbers)
    with pytest.raises(InvalidRequest, match="Unknown number: 99"):
        member_of(enum, danube_enum, 99, "Unknown number:")
