"""The wiretap knows what a subscription may deliver, also when answers get lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pydanube.model.policy import SubscriptionType
from pydanube.wire.native.frames import header
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from simulation.deliveries import SENDING_S_MAX, Delivered, Watch
from simulation.ledger import Ledger, SubscriptionHistory, TopicHistory, Violations
from simulation.plan import SubscriptionPlan
from simulation.wiretap import LinkTap

TOPIC, NAME = "/default/t", "s"
CHANNEL = 1
CONSUMER_LINK, RIVAL_LINK, ADMINISTRATOR_LINK = 1, 2, 3
SEEK = pb.SeekSubscription(topic=TOPIC, subscription=NAME, to={"start": "EARLIEST"})


class Wire:
    """The connections of a broker with one subscription."""

    def __init__(self):
        self.now = 0.0
        self.violations = Violations(lambda: self.now)
        ledger = Ledger(self.violations, lambda: self.now)
        topic = ledger.topics[TOPIC] = TopicHistory(TOPIC)
        ledger.subscriptions[TOPIC, NAME] = SubscriptionHistory(
            topic, NAME, SubscriptionType.SHARED
        )
        plan = SubscriptionPlan(
            topic=TOPIC,
            name=NAME,
            type=SubscriptionType.SHARED,
            start="earliest",
            ack_timeout_s=None,
            policy=None,
            limits=None,
            consumers=(),
            operations=("seek",),
            operation_pause_s=1.0,
            is_replayed=False,
        )
        self.watch = Watch(
            ledger,
            self.violations,
            [plan],
            clock=lambda: self.now,
            wall_clock_us=lambda: None,
            note=lambda *_: None,
        )
        self._taps = {}

    def asks(self, link, kind, message, *, correlation, channel=0):
        self._tap(link).on_received(_frame(kind, message, correlation, channel))

    def answers(self, link, kind, message, *, correlation, channel=0):
        self._tap(link).on_written(_frame(kind, message, correlation, channel))

    def opens_consumer(self, link):
        request = pb.OpenConsumer(topic=TOPIC, subscription=NAME, name=f"c{link}")
        self.asks(link, Kind.OPEN_CONSUMER, request, correlation=1, channel=CHANNEL)
        opened = pb.ConsumerOpened()
        self.answers(link, Kind.CONSUMER_OPENED, opened, correlation=1, channel=CHANNEL)
        credit = pb.Credit(messages=9)
        self.asks(link, Kind.CREDIT, credit, correlation=0, channel=CHANNEL)

    def delivers(self, link, offset):
        self.watch.on_delivery((link, CHANNEL), [Delivered(offset, b"")], 1)

    def acks(self, link, offset):
        ack = pb.Ack(ranges={"base": [offset], "end": [offset + 1]})
        self.asks(link, Kind.ACK, ack, correlation=2, channel=CHANNEL)

    def confirms(self, link):
        self.answers(link, Kind.OK, pb.Ok(), correlation=2, channel=CHANNEL)

    def loses(self, link):
        self._tap(link).on_lost()

    def restarts(self):
        self.watch.on_broker_ended()

    def _tap(self, link):
        if link not in self._taps:
            self._taps[link] = LinkTap(
                SimpleNamespace(number=link),
                self.watch,
                lambda *_: None,
                lambda *_: None,
            )
        return self._taps[link]


def _frame(kind, message, correlation, channel):
    body = message.SerializeToString()
    return header(kind, channel, correlation, len(body)) + body


@pytest.mark.parametrize(
    ("is_sought", "found"),
    [
        (False, ["messages that are confirmed as done are not delivered again"]),
        (True, []),
    ],
)
def test_seek_without_answer_undoes_acks_that_are_confirmed_later(is_sought, found):
    wire = Wire()
    wire.opens_consumer(CONSUMER_LINK)
    wire.delivers(CONSUMER_LINK, 0)
    wire.acks(CONSUMER_LINK, 0)
    if is_sought:
        wire.asks(ADMINISTRATOR_LINK, Kind.SEEK_SUBSCRIPTION, SEEK, correlation=1)
        wire.loses(ADMINISTRATOR_LINK)
    # The disk was slow: it has the ack, and the seek behind it.
    wire.confirms(CONSUMER_LINK)
    wire.restarts()
    wire.now = 2 * SENDING_S_MAX
    wire.opens_consumer(RIVAL_LINK)
    wire.delivers(RIVAL_LINK, 0)
    assert [each.rule for each in wire.violations.found] == found


def test_acks_after_a_seek_without_answer_are_final():
    wire = Wire()
    wire.asks(ADMINISTRATOR_LINK, Kind.SEEK_SUBSCRIPTION, SEEK, correlation=1)
    wire.loses(ADMINISTRATOR_LINK)
    wire.opens_consumer(CONSUMER_LINK)
    wire.delivers(CONSUMER_LINK, 0)
    wire.acks(CONSUMER_LINK, 0)
    wire.confirms(CONSUMER_LINK)
    wire.restarts()
    wire.now = 2 * SENDING_S_MAX
    wire.opens_consumer(RIVAL_LINK)
    wire.delivers(RIVAL_LINK, 0)
    assert len(wire.violations.found) == 1
