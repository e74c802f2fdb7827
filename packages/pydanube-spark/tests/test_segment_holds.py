"""The holds of a process live as long as queries may read the segments."""

import threading

from pydanube.model.errors import ConnectionLost, PermissionDenied
from pydanube_spark.segment_holds import HOLD_S, NAME, SegmentHolds

URL = "danube://here"
A, B = "/default/a", "/default/b"


class Holds:
    """A client of a broker that records the holds of topics."""

    def __init__(self):
        self.topics = self
        self.held = {}
        self.is_allowed = self.is_there = True

    def hold(self, topic, name, reason, *, expires_in_s):
        if not self.is_allowed:
            raise PermissionDenied("hold_topic is not allowed")
        if not self.is_there:
            raise ConnectionLost("the broker cannot be reached")
        self.held[topic] = name

    def release(self, topic, name):
        assert self.held.pop(topic) == name


def test_topics_are_held_until_nothing_has_read_them_for_a_while():
    client, now = Holds(), [0.0]
    holds = SegmentHolds(lambda: now[0])
    assert holds.add(client, URL, [A, B]) is None
    assert client.held == {A: NAME, B: NAME}
    now[0] = HOLD_S - 1
    holds.renew(is_used=True)
    holds.add(client, URL, [A])
    now[0] += HOLD_S - 1
    holds.renew(is_used=False)
    assert sorted(holds.topics) == [A, B]
    now[0] += 1
    holds.renew(is_used=False)
    assert (client.held, holds.topics) == ({}, [])


def test_all_holds_are_released_at_the_end():
    client = Holds()
    holds = SegmentHolds(lambda: 0.0)
    holds.add(client, URL, [A, B])
    holds.release()
    assert (client.held, holds.topics) == ({}, [])


def test_a_hold_that_is_not_permitted_is_not_kept(caplog):
    client = Holds()
    client.is_allowed = False
    holds = SegmentHolds(lambda: 0.0)
    assert isinstance(holds.add(client, URL, [A, B]), PermissionDenied)
    assert holds.topics == []
    client.is_allowed = True
    assert holds.add(client, URL, [A]) is None
    client.is_allowed = False
    holds.renew(is_used=True)
    assert holds.topics == []
    [message] = caplog.messages
    assert message.startswith(f"{A} is not held any longer: hold_topic is not allowed")


def test_a_hold_outlives_a_broker_that_cannot_be_reached_for_a_while(caplog):
    client, now = Holds(), [0.0]
    holds = SegmentHolds(lambda: now[0])
    holds.add(client, URL, [A])
    client.is_there = False
    holds.renew(is_used=True)
    assert (client.held, holds.topics) == ({A: NAME}, [A])
    [message] = caplog.messages
    assert message.startswith(f"{A} is to be held again later: the broker cannot")
    client.is_there = True
    client.held.clear()
    holds.renew(is_used=True)
    assert client.held == {A: NAME}
    client.is_there = False
    now[0] = HOLD_S
    holds.renew(is_used=False)
    assert holds.topics == []


class TogetherHolds(Holds):
    """A client whose requests are answered when there are two at the same time."""

    def __init__(self):
        super().__init__()
        self.both = threading.Barrier(2, timeout=60)

    def hold(self, topic, name, reason, *, expires_in_s):
        self.both.wait()
        super().hold(topic, name, reason, expires_in_s=expires_in_s)


def test_topics_are_held_at_the_same_time():
    client = TogetherHolds()
    holds = SegmentHolds(lambda: 0.0)
    assert holds.add(client, URL, [A, B]) is None
    client.held.clear()
    holds.renew(is_used=True)
    assert client.held == {A: NAME, B: NAME}


def test_a_topic_that_cannot_be_held_leaves_the_others_held():
    class Picky(Holds):
        def hold(self, topic, name, reason, *, expires_in_s):
            if topic == A:
                raise PermissionDenied("hold_topic is not allowed")
            super().hold(topic, name, reason, expires_in_s=expires_in_s)

    holds = SegmentHolds(lambda: 0.0)
    client = Picky()
    assert isinstance(holds.add(client, URL, [A, B]), PermissionDenied)
    assert (holds.topics, client.held) == ([B], {B: NAME})
