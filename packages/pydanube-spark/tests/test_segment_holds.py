"""The holds of a process live as long as queries may read the segments."""

import subprocess
import sys
import threading
import time

from pydanube.model.errors import ConnectionLost, PermissionDenied
from pydanube_spark.segment_holds import HOLD_S, NAME, HoldKeeper, SegmentHolds

URL = "danube://here"
A, B = "/default/a", "/default/b"


class Holds:
    """A client of a broker that records the holds of topics."""

    def __init__(self):
        self.topics = self
        self.held = {}
        self.is_allowed = self.is_there = True
        self.releases = 0

    def hold(self, topic, name, reason, *, expires_in_s):
        if not self.is_allowed:
            raise PermissionDenied("hold_topic is not allowed")
        if not self.is_there:
            raise ConnectionLost("the broker cannot be reached")
        self.held[topic] = name

    def release(self, topic, name):
        self.releases += 1
        if not self.is_there:
            raise ConnectionLost("the broker cannot be reached")
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


def test_a_broker_that_does_not_answer_is_asked_once_at_the_end():
    gone, there = Holds(), Holds()
    holds = SegmentHolds(lambda: 0.0)
    holds.add(gone, URL, [A, B])
    holds.add(there, "danube://there", [A, B])
    gone.is_there = False
    holds.release()
    assert (gone.releases, there.held, holds.topics) == (1, {}, [])


class Application:
    """A session of Spark and its context, which may end."""

    def __init__(self):
        self.sparkContext = self
        self.is_running = True

    def statusTracker(self):  # noqa: N802  # Spark's name.
        return self

    def getActiveJobsIds(self):  # noqa: N802  # Spark's name.
        if not self.is_running:
            raise RuntimeError("the application has ended")
        return []


def test_the_end_of_an_application_leaves_the_holds_of_the_next_one():
    client, keeper = Holds(), HoldKeeper(renew_s=0.01)
    first, second = Application(), Application()
    keeper.hold(first, client, URL, [A])
    keeper.hold(second, client, URL, [B])
    first.is_running = False
    client.held.clear()
    # It is renewed.
    while client.held.keys() != {A, B}:
        time.sleep(0.01)
    keeper.end()
    assert client.held == {}


def test_the_end_of_the_process_does_not_wait_for_a_broker_that_is_gone():
    class Stuck(Holds):
        def __init__(self):
            super().__init__()
            self.answer = threading.Event()

        def release(self, topic, name):
            self.answer.wait()

    client, keeper = Stuck(), HoldKeeper(end_s=0.01)
    keeper.hold(Application(), client, URL, [A])
    keeper.end()
    client.answer.set()


EXITING = """\
import atexit
from pydanube_spark.segment_holds import hold_segments

class Client:
    topics = property(lambda self: self)
    sparkContext = topics

    def hold(self, topic, name, reason, expires_in_s):
        # The client's module is imported when the first client connects.
        atexit.register(print, "closed")

    def release(self, topic, name):
        print("released", topic)

    def statusTracker(self):
        return self

    def getActiveJobsIds(self):
        return []

client = Client()
client.hold("/default/a", "", "", 1.0)
hold_segments(client, client, "danube://here", ["/default/a"])
"""


def test_holds_are_released_before_clients_are_closed_at_the_end_of_the_process():
    done = subprocess.run(
        [sys.executable, "-c", EXITING], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["released /default/a", "closed", "closed"]


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
