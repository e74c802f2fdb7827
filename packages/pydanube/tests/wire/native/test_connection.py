import pytest

from pydanube.model.batch import batch_of
from pydanube.model.errors import ProtocolViolation
from pydanube.wire.batches import Codec, encode
from pydanube.wire.native.connection import ConnectionState, StreamConnection
from pydanube.wire.native.frames import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.streams import batch_frame, connected, feed, hello, opened


def publish(client: StreamConnection, channel: int = 1) -> bytes:
    return b"".join(client.send_batch(Kind.PUBLISH, batch_frame(b"m"), channel))


def test_handshake_opens_both_sides():
    client, broker = connected()

    assert client.state is ConnectionState.OPEN
    assert broker.state is ConnectionState.OPEN


def test_broker_accepts_only_hello_before_the_handshake():
    broker = StreamConnection(Side.BROKER)

    with pytest.raises(ProtocolViolation, match="before the handshake"):
        feed(broker, header(Kind.PING, 0, 1, 0))

    assert broker.state is ConnectionState.CLOSED


def test_a_client_must_wait_for_the_welcome():
    client, broker = StreamConnection(Side.CLIENT), StreamConnection(Side.BROKER)
    _, data = client.request(Kind.HELLO, hello())
    feed(broker, data)

    with pytest.raises(ProtocolViolation, match="before the handshake"):
        feed(broker, client.request(Kind.PING, pb.Ping())[1])


def test_long_frames_are_refused_until_the_client_is_known():
    _, broker = connected()
    assert broker.reader.frame_bytes_max == FRAME_BYTES_MAX

    newcomer = StreamConnection(Side.BROKER)
    with pytest.raises(ProtocolViolation, match="allowed"):
        feed(newcomer, header(Kind.HELLO, 0, 1, HANDSHAKE_BYTES_MAX))


def test_second_hello_is_refused():
    client, broker = connected()

    with pytest.raises(ProtocolViolation, match="after the handshake"):
        feed(broker, client.request(Kind.HELLO, hello())[1])


def test_a_batch_on_a_channel_that_is_not_open_is_refused():
    client, broker = connected()

    with pytest.raises(ProtocolViolation, match="not open"):
        feed(broker, publish(client))


def test_a_consumer_cannot_publish():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_CONSUMER)

    with pytest.raises(ProtocolViolation, match="which is consumer"):
        feed(broker, publish(client))


def test_a_published_batch_arrives_with_its_bytes():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)

    [received] = feed(broker, publish(client))

    assert received.batch is not None
    assert received.batch.check().column("payload").to_pylist() == [b"m"]


def test_a_delivery_carries_its_attempt():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_CONSUMER)
    parts = broker.send_batch(Kind.DELIVERY, batch_frame(b"m"), 1, attempt=3)

    [received] = feed(client, b"".join(parts))

    assert received.attempt == 3
    assert received.batch is not None


def test_what_was_sent_before_the_broker_closed_the_channel_is_dropped():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)
    in_flight = publish(client)
    feed(client, broker.close_channel(1, pb.Error(code="producer_fenced")))

    assert feed(broker, in_flight) == []


def test_a_channel_that_the_broker_closed_can_be_opened_again():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)
    feed(client, broker.close_channel(1, pb.Error(code="draining")))

    opened(client, broker, Kind.OPEN_PRODUCER)

    assert len(feed(broker, publish(client))) == 1


def test_a_channel_is_opened_once():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)

    with pytest.raises(ProtocolViolation, match="in use"):
        feed(broker, client.request(Kind.OPEN_CONSUMER, pb.OpenConsumer(), 1)[1])


def test_an_open_that_fails_leaves_the_channel_free():
    client, broker = connected()
    _, data = client.request(Kind.OPEN_CONSUMER, pb.OpenConsumer(), 1)
    [asked] = feed(broker, data)
    feed(client, broker.answer(asked, Kind.ERROR, pb.Error(code="consumer_busy")))

    opened(client, broker, Kind.OPEN_PRODUCER)


def test_a_channel_may_be_closed_while_it_is_being_opened():
    client, broker = connected()
    _, opening = client.request(Kind.OPEN_PRODUCER, pb.OpenProducer(), 1)
    _, closing = client.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)
    asked, closed = feed(broker, opening + closing)
    feed(client, broker.answer(asked, Kind.ERROR, pb.Error(code="closed")))
    feed(client, broker.answer(closed, Kind.OK, pb.Ok()))

    opened(client, broker, Kind.OPEN_CONSUMER)


def test_a_channel_may_be_closed_before_it_is_known_that_it_was_not_opened():
    client, broker = connected()
    _, opening = client.request(Kind.OPEN_PRODUCER, pb.OpenProducer(), 1)
    _, closing = client.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)
    [asked] = feed(broker, opening)
    refusal = broker.answer(asked, Kind.ERROR, pb.Error(code="producer_busy"))
    [closed] = feed(broker, closing)
    feed(client, refusal + broker.answer(closed, Kind.OK, pb.Ok()))

    opened(client, broker, Kind.OPEN_CONSUMER)


def test_opening_is_closed_only_by_its_own_kind():
    client, broker = connected()
    _, opening = client.request(Kind.OPEN_PRODUCER, pb.OpenProducer(), 1)
    feed(broker, opening)

    with pytest.raises(ProtocolViolation, match="being opened"):
        feed(broker, client.request(Kind.CLOSE_CONSUMER, pb.CloseConsumer(), 1)[1])


def test_nothing_is_published_before_the_opening_is_answered():
    client, broker = connected()
    feed(broker, client.request(Kind.OPEN_PRODUCER, pb.OpenProducer(), 1)[1])

    with pytest.raises(ProtocolViolation, match="being opened"):
        feed(broker, publish(client))


def test_a_closed_channel_is_free_again():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)
    _, data = client.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)
    [asked] = feed(broker, data)
    feed(client, broker.answer(asked, Kind.OK, pb.Ok()))

    opened(client, broker, Kind.OPEN_CONSUMER)


def test_answer_without_a_request_is_refused():
    client, broker = connected()

    with pytest.raises(ProtocolViolation, match="no such request"):
        feed(client, broker.send(Kind.OK, pb.Ok(), 0, 77))


def test_an_answer_must_be_of_the_right_kind():
    client, broker = connected()
    correlation, _ = client.request(Kind.LIST_TOPICS, pb.ListTopics())

    with pytest.raises(ProtocolViolation, match="PONG answers LIST_TOPICS"):
        feed(client, broker.send(Kind.PONG, pb.Pong(), 0, correlation))


def test_a_correlation_in_use_is_refused():
    _, broker = connected()
    ping = header(Kind.PING, 0, 5, 0)
    feed(broker, ping)

    with pytest.raises(ProtocolViolation, match="in use"):
        feed(broker, ping)


def test_fetched_batches_come_before_the_end_of_the_fetch():
    client, broker = connected()
    correlation, data = client.request(Kind.FETCH, pb.Fetch())
    [asked] = feed(broker, data)
    parts = broker.send_batch(Kind.FETCHED, batch_frame(b"m"), 0, correlation)

    received = feed(
        client, b"".join(parts) + broker.answer(asked, Kind.FETCH_END, pb.FetchEnd())
    )

    assert [each.kind for each in received] == [Kind.FETCHED, Kind.FETCH_END]


def test_a_body_that_is_no_message_is_refused():
    _, broker = connected()

    with pytest.raises(ProtocolViolation, match="LIST_TOPICS"):
        feed(broker, header(Kind.LIST_TOPICS, 0, 5, 2) + b"\x0a\xff")


def test_kinds_of_the_other_side_are_refused():
    _, broker = connected()

    with pytest.raises(ProtocolViolation, match="may not be sent"):
        feed(broker, header(Kind.RECEIPT, 1, 0, 0))


def test_a_closed_connection_takes_nothing_more():
    client, broker = connected()
    broker.close()

    assert feed(broker, client.request(Kind.PING, pb.Ping())[1]) == []


def test_a_body_that_decompresses_to_more_than_a_frame_is_refused():
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER)
    bomb = encode(
        batch_of([bytes(FRAME_BYTES_MAX + 1)]), batch_frame(b"").header, Codec.ZSTD
    )
    assert len(bomb.buffer) < 10_000

    with pytest.raises(ProtocolViolation, match="before compression"):
        feed(broker, b"".join(client.send_batch(Kind.PUBLISH, bomb, 1)))


def test_a_stage_is_a_channel_of_its_own_kind():
    client, broker = connected()
    _, data = client.request(Kind.OPEN_STAGE, pb.OpenStage(), 1)
    [asked] = feed(broker, data)
    feed(client, broker.answer(asked, Kind.STAGE_OPENED, pb.StageOpened()))
    staged = b"".join(client.send_batch(Kind.STAGE, batch_frame(b"m"), 1))

    [frame] = feed(broker, staged)
    assert (frame.kind, frame.channel, frame.batch.count) == (Kind.STAGE, 1, 1)
    [told] = feed(client, broker.send(Kind.STAGED, pb.Staged(next_sequence=1), 1))
    assert told.message.next_sequence == 1

    with pytest.raises(ProtocolViolation, match="which is stage"):
        feed(broker, publish(client))
