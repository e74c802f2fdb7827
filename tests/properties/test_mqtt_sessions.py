"""
A session gets every message, whatever happens to its connection and to the broker.

The test plays the feed, the log, the client and crashes around a session.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.security.principals import ANONYMOUS
from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.pure.session import Delivery, Session, SessionLimits

pytestmark = pytest.mark.slow

FEED = "feed"
LIMITS = SessionLimits(in_flight_max=3, queue_messages_max=4, queue_bytes_max=1200)
STEPS = st.lists(
    st.sampled_from(
        ["publish", "send", "read", "ack", "ack last", "lose", "connect", "crash"]
    ),
    max_size=60,
)


class World:
    """A session with its topic and its client."""

    def __init__(self, qos) -> None:
        self.session = Session(client_id="c", owner=ANONYMOUS, limits=LIMITS)
        self.qos = qos
        self.log_end = 0
        self.is_connected = True
        self.sent_order = []
        """The offsets in the order in which they were sent for the first time since
        the last crash."""
        self.acknowledged = set()
        self._saved = {}

    def delivery(self, offset):
        message = Message("a", bytes(100), qos=self.qos, offset=offset)
        return Delivery(message, self.qos, origin=FEED)

    def play(self, step):
        match step:
            case "publish":
                self._publish()
            case "send" if self.is_connected:
                self._send()
            case "read" if self.is_connected:
                self._read()
            case "ack" if self.is_connected and self.session.in_flight:
                self._acknowledge(next(iter(self.session.in_flight)))
            case "ack last" if self.is_connected and self.session.in_flight:
                self._acknowledge(next(reversed(self.session.in_flight)))
            case "lose" if self.is_connected:
                self._lose()
            case "connect" if not self.is_connected:
                self._connect()
            case "crash":
                self._crash()
        self._check()

    def finish(self):
        """Let the client receive and acknowledge everything."""
        if not self.is_connected:
            self._connect()
        while self.session.behind or self.session.queue or self.session.in_flight:
            self._read()
            self._send()
            for packet_id in list(self.session.in_flight):
                self._acknowledge(packet_id)
            self._check()

    def _publish(self):
        offset = self.log_end
        self.log_end += 1
        if not self.is_connected or FEED in self.session.behind:
            return
        if not self.session.offer(self.delivery(offset)):
            self.session.behind[FEED] = offset

    def _send(self):
        for each in self.session.take_due(0):
            self.sent_order.append(each.message.offset)

    def _read(self):
        while FEED in self.session.behind and self.session.has_room:
            offset = self.session.behind[FEED]
            if offset == self.log_end:
                del self.session.behind[FEED]
            else:
                self.session.offer(self.delivery(offset))
                self.session.behind[FEED] = offset + 1

    def _acknowledge(self, packet_id):
        offset = self.session.in_flight[packet_id].message.offset
        if self.qos == 2:
            assert self.session.on_received(packet_id, is_error=False)
        assert self.session.on_acknowledged(packet_id, qos=self.qos)
        self.acknowledged.add(offset)

    def _lose(self):
        self.is_connected = False
        self.session.requeue({FEED: self.log_end})
        self.session.drop_shared()
        self.session.evict()

    def _connect(self):
        self.is_connected = True
        for each in self.session.evicted():
            self.session.restore(each, self.delivery(each.message.offset).message)
        assert all(each.message.payload for each in self.session.resume())

    def _crash(self):
        positions = self.session.positions()
        if self.is_connected:
            positions.setdefault(FEED, self.log_end)
        self.session = Session(client_id="c", owner=ANONYMOUS, limits=LIMITS)
        self.session.behind.update(positions)
        self.is_connected = False
        self.sent_order = []

    def _check(self):
        session = self.session
        assert len(session.in_flight) <= LIMITS.in_flight_max
        assert len(session.queue) <= LIMITS.queue_messages_max
        assert session.queue_bytes == sum(e.message.byte_count for e in session.queue)
        assert session.in_flight_bytes == sum(
            each.message.byte_count for each in session.in_flight.values()
        )
        assert len(session.in_flight) <= 1 or (
            session.in_flight_bytes <= LIMITS.queue_bytes_max
        )
        assert self.sent_order == sorted(set(self.sent_order))


@given(st.sampled_from([1, 2]), STEPS)
def test_every_message_is_acknowledged_and_first_sent_in_order(qos, steps):
    world = World(qos)
    for step in steps:
        world.play(step)
    world.finish()
    assert world.acknowledged == set(range(world.log_end))
