"""Sessions keep what was not acknowledged, within their bounds."""

from __future__ import annotations

import pytest

from pydanube.security.principals import ANONYMOUS
from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.pure.session import Delivery, Session, SessionLimits

FEED = "feed"
NOW_US = 1_000_000


def session(**limits):
    return Session(client_id="c", owner=ANONYMOUS, limits=SessionLimits(**limits))


def delivery(offset=0, qos=1, origin=FEED, **fields):
    message = Message("a", **{"payload": b"x", "offset": offset} | fields)
    return Delivery(message, qos, origin=origin)


def taken(found):
    return [each.message.offset for each in found.take_due(NOW_US)]


def test_no_more_is_in_flight_than_the_client_accepts():
    found = session()
    found.send_max = 2
    for offset in range(3):
        assert found.offer(delivery(offset))
    assert taken(found) == [0, 1]
    assert found.on_acknowledged(1, qos=1)
    assert taken(found) == [2]
    assert list(found.in_flight) == [2, 3]


def test_messages_of_qos_0_need_no_acknowledgement():
    found = session(in_flight_max=1)
    for offset in range(3):
        found.offer(delivery(offset, qos=0))
    assert taken(found) == [0, 1, 2]
    assert not found.in_flight


def test_the_queue_is_bounded_by_messages_and_by_bytes():
    found = session(queue_messages_max=2)
    assert [found.offer(delivery()) for _ in range(3)] == [True, True, False]
    found = session(queue_bytes_max=1)
    assert [found.offer(delivery()) for _ in range(2)] == [True, False]
    assert taken(found) == [0]
    assert found.queue_bytes == 0


def test_expired_messages_are_not_sent():
    found = session()
    found.offer(delivery(0, expires_at_us=NOW_US))
    found.offer(delivery(1, expires_at_us=NOW_US + 1))
    assert taken(found) == [1]


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_of_the_other_qos_change_nothing(qos):
    found = session()
    found.offer(delivery(qos=qos))
    taken(found)
    assert not found.on_acknowledged(1, qos=3 - qos)
    assert not found.on_acknowledged(2, qos=qos)
    assert found.on_received(1, is_error=False) is (qos == 2)
    assert found.on_acknowledged(1, qos=qos)
    assert not found.in_flight


def test_a_refused_message_is_done_with():
    found = session()
    found.offer(delivery(qos=2))
    taken(found)
    assert found.on_received(1, is_error=True)
    assert not found.in_flight


def test_packet_identifiers_are_not_used_twice():
    found = session(in_flight_max=65_535, queue_bytes_max=1 << 30)
    for _ in range(65_535):
        found.offer(delivery()) or found.add([delivery()])
    assert len(taken(found)) == 65_535
    assert found.on_acknowledged(7, qos=1)
    found.offer(delivery())
    taken(found)
    assert list(found.in_flight)[-1] == 7


def test_a_lost_connection_leaves_what_can_be_read_again():
    found = session(in_flight_max=1)
    for offset in (3, 4, 5):
        found.offer(delivery(offset))
    found.add([delivery(origin=None)])
    assert taken(found) == [3]
    found.requeue({FEED: 6, "other": 9})
    assert found.behind == {FEED: 4, "other": 9}
    assert [each.origin for each in found.queue] == [None]
    assert [each.message.offset for each in found.resume()] == [3]
    assert found.positions() == {FEED: 3, "other": 9}


def test_a_session_that_was_behind_continues_at_what_was_queued():
    found = session()
    found.behind[FEED] = 8
    found.offer(delivery(6))
    found.requeue({FEED: 20})
    assert found.behind == {FEED: 6}


def test_received_messages_of_qos_2_are_not_sent_again_after_a_crash():
    found = session()
    for offset in (3, 4):
        found.offer(delivery(offset, qos=2))
    taken(found)
    found.on_received(1, is_error=False)
    assert found.positions() == {FEED: 4}


def test_bytes_in_flight_are_bounded_but_for_one_message():
    found = session(queue_bytes_max=300)
    found.add(delivery(offset, payload=bytes(200)) for offset in range(2))
    assert taken(found) == [0]
    found.on_acknowledged(1, qos=1)
    assert taken(found) == [1]
    found.on_received(2, is_error=False)
    found.on_acknowledged(2, qos=1)
    assert found.in_flight_bytes == 0


def test_the_content_of_messages_in_flight_is_read_again():
    found = session()
    for offset in (3, 4):
        found.offer(delivery(offset))
    found.add([delivery(origin=None)])
    taken(found)
    before = found.in_flight_bytes
    found.evict()
    three, four = found.evicted()
    assert found.in_flight_bytes < before
    assert [each.message.payload for each in found.resume()] == [b"", b"", b"x"]
    found.restore(three, Message("a", b"x", offset=3))
    found.restore(four, None)
    assert [each.message.payload for each in found.resume()] == [b"x", b"x"]
    for packet_id in (1, 3):
        found.on_acknowledged(packet_id, qos=1)
    # Another connection, which was slower, has read it too.
    found.restore(three, Message("a", b"x", offset=3))
    assert found.in_flight_bytes == 0


def test_shared_messages_are_finished_once_or_given_back():
    found, done = session(in_flight_max=2), []
    for number in range(4):
        each = delivery(number, origin=None)
        each.on_done = lambda number=number: done.append(number)
        found.add([each])
    assert taken(found) == [0, 1]
    found.on_acknowledged(1, qos=1)
    assert done == [0]
    found.requeue({})
    found.drop_shared()
    assert not found.in_flight
    assert not found.queue
    assert done == [0]
