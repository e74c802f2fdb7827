import pytest

from pydanube.model.errors import (
    Closed,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess
from pydanube_broker.broker.pure.producer_registrations import (
    QUEUED_MAX,
    ProducerRegistration,
    ProducerRegistrations,
)

SHARED = ProducerAccess.SHARED
EXCLUSIVE = ProducerAccess.EXCLUSIVE
WAIT = ProducerAccess.EXCLUSIVE_WAIT
FENCE = ProducerAccess.EXCLUSIVE_FENCE

TOPIC = TopicName.parse("/default/orders")


class Topic:
    """Producer registrations, and all notifications in order."""

    def __init__(self):
        self.registrations = ProducerRegistrations(TOPIC)
        self.notified = []

    def request(self, name, access=SHARED, *, is_joining=False, is_returning=False):
        def fenced(error):
            self.notified.append((name, "fenced", type(error)))

        return ProducerRegistration(
            name=name,
            access=access,
            on_fenced=fenced,
            is_joining=is_joining,
            is_returning=is_returning,
        )

    def register(self, name, access=SHARED, *, producers_max=0, **options):
        return self.registrations.register(
            self.request(name, access, **options), producers_max
        )

    def queue(self, name):
        assert self.register(name, WAIT) is None

        def admitted(error):
            self.notified.append(
                (name, "admitted", None if error is None else type(error))
            )

        return self.registrations.queue(self.request(name, WAIT), admitted)


@pytest.fixture
def topic():
    return Topic()


def test_shared_producers_are_registered_together(topic):
    assert topic.register("a").is_valid
    assert topic.register("b").is_valid
    assert list(topic.registrations) == ["a", "b"]


def test_producer_with_same_name_fences_the_earlier_one(topic):
    before = topic.register("a")
    after = topic.register("a")
    assert isinstance(before.refusal, ProducerFenced)
    assert after.is_valid
    assert len(topic.registrations) == 1
    assert topic.notified == [("a", "fenced", ProducerFenced)]


def test_joining_producer_shares_registration_of_its_name(topic):
    before = topic.register("a", is_joining=True)
    assert topic.register("a", is_joining=True) is before
    assert topic.notified == []


def test_registration_is_shared_only_if_both_producers_join(topic):
    attached = topic.register("a", is_joining=True)
    opened = topic.register("a")
    assert not attached.is_valid
    assert topic.register("a", is_joining=True) is not opened
    assert not opened.is_valid


def test_limit_counts_only_new_names(topic):
    topic.register("a", producers_max=2)
    topic.register("b", producers_max=2)
    with pytest.raises(QuotaExceeded, match="Current: 2, Limit: 2"):
        topic.register("c", producers_max=2)
    assert topic.register("a", producers_max=2).is_valid
    assert topic.register("b", producers_max=1).is_valid


def test_limit_does_not_count_producers_that_left(topic):
    registration = topic.register("a", producers_max=1)
    topic.registrations.leave(registration)
    assert topic.register("b", producers_max=1).is_valid
    assert isinstance(registration.refusal, Closed)
    assert topic.notified == []


def test_exclusive_producer_is_refused_beside_another(topic):
    topic.register("a")
    with pytest.raises(ProducerBusy, match="another producer: a"):
        topic.register("b", EXCLUSIVE)


@pytest.mark.parametrize("access", [SHARED, EXCLUSIVE])
def test_exclusive_producer_excludes_others(topic, access):
    topic.register("a", EXCLUSIVE)
    with pytest.raises(ProducerBusy):
        topic.register("b", access)
    assert topic.register("a", EXCLUSIVE).is_valid


def test_others_may_register_after_exclusive_producer_left(topic):
    registration = topic.register("a", EXCLUSIVE)
    topic.registrations.leave(registration)
    assert topic.registrations.exclusive is None
    assert topic.register("b").is_valid


def test_registering_again_as_shared_ends_exclusive_access(topic):
    topic.register("a", EXCLUSIVE)
    topic.register("a")
    assert topic.register("b").is_valid


def test_fenced_producers_are_notified_and_removed(topic):
    fenced = [topic.register("a"), topic.register("b")]
    newcomer = topic.register("c", FENCE)
    assert [type(registration.refusal) for registration in fenced] == [
        ProducerFenced
    ] * 2
    assert topic.notified == [
        ("a", "fenced", ProducerFenced),
        ("b", "fenced", ProducerFenced),
    ]
    assert topic.registrations.exclusive is newcomer
    assert list(topic.registrations) == ["c"]
    with pytest.raises(ProducerBusy):
        topic.register("a")


def test_leaving_of_fenced_producer_changes_nothing(topic):
    fenced = topic.register("a")
    newcomer = topic.register("b", FENCE)
    topic.registrations.leave(fenced)
    assert isinstance(fenced.refusal, ProducerFenced)
    assert newcomer.is_valid


def test_queue_is_first_in_first_out(topic):
    first = topic.register("a")
    second, third = topic.queue("b"), topic.queue("c")
    topic.registrations.leave(first)
    assert topic.notified == [("b", "admitted", None)]
    assert second.registration is topic.registrations.exclusive
    topic.registrations.leave(second.registration)
    assert topic.notified[1:] == [("c", "admitted", None)]
    assert third.registration.is_valid


def test_queued_producer_is_admitted_after_the_last_other_left(topic):
    first, second = topic.register("a"), topic.register("b")
    topic.queue("c")
    topic.registrations.leave(first)
    assert topic.notified == []
    topic.registrations.leave(second)
    assert topic.notified == [("c", "admitted", None)]


def test_new_producers_are_refused_while_others_are_queued(topic):
    topic.register("a")
    topic.queue("b")
    with pytest.raises(ProducerBusy, match="b waits"):
        topic.register("c")
    with pytest.raises(ProducerBusy):
        topic.register("d", EXCLUSIVE)
    assert topic.register("a").is_valid


def test_registered_producer_may_queue_for_exclusive_access(topic):
    mine, other = topic.register("a"), topic.register("b")
    queued = topic.queue("a")
    topic.registrations.leave(other)
    assert queued.registration is topic.registrations.exclusive
    assert not mine.is_valid
    assert topic.notified == [("a", "admitted", None), ("a", "fenced", ProducerFenced)]


def test_cancelled_producer_does_not_block_the_queue(topic):
    first = topic.register("a")
    second, third = topic.queue("b"), topic.queue("c")
    topic.registrations.cancel(second)
    topic.registrations.leave(first)
    assert topic.notified == [("c", "admitted", None)]
    assert third.registration.is_valid


def test_cancelling_the_first_may_admit_the_next(topic):
    first = topic.register("a")
    ahead, queued = topic.queue("b"), None
    queued = topic.registrations.queue(
        topic.request("a", WAIT), lambda error: topic.notified.append(("a", error))
    )
    assert queued.registration is None
    topic.registrations.cancel(ahead)
    assert queued.registration is topic.registrations.exclusive
    assert not first.is_valid


def test_cancelling_after_admission_admits_the_next(topic):
    first = topic.register("a")
    second, third = topic.queue("b"), topic.queue("c")
    topic.registrations.leave(first)
    topic.registrations.cancel(second)
    assert topic.notified == [("b", "admitted", None), ("c", "admitted", None)]
    assert not second.registration.is_valid
    assert third.registration.is_valid


def test_queueing_again_with_same_name_keeps_the_position(topic):
    first = topic.register("a")
    lost = topic.queue("b")
    topic.queue("c")
    again = topic.queue("b")
    topic.registrations.cancel(lost)
    topic.registrations.leave(first)
    assert topic.notified == [
        ("b", "admitted", ProducerFenced),
        ("b", "admitted", None),
    ]
    assert again.registration.is_valid


def test_queued_producers_are_not_fenced(topic):
    topic.register("a")
    queued = topic.queue("b")
    newcomer = topic.register("c", FENCE)
    assert queued.registration is None
    topic.registrations.leave(newcomer)
    assert queued.registration.is_valid


def test_queue_is_bounded(topic):
    topic.register("a")
    for number in range(QUEUED_MAX):
        topic.queue(f"p{number}")
    with pytest.raises(ProducerBusy, match="1000 producers already wait"):
        topic.queue("d")


def test_close_notifies_registered_and_queued_producers(topic):
    registered = topic.register("a")
    queued = topic.queue("b")
    topic.registrations.close(TopicNotFound("gone"))
    assert isinstance(registered.refusal, TopicNotFound)
    assert queued.registration is None
    assert topic.notified == [
        ("b", "admitted", TopicNotFound),
        ("a", "fenced", TopicNotFound),
    ]
    assert list(topic.registrations) == []


def test_fencing_twice_notifies_once(topic):
    registration = topic.register("a")
    topic.registrations.fence(registration, ProducerFenced("first"))
    topic.registrations.fence(registration, ProducerFenced("second"))
    assert str(registration.refusal) == "first"
    assert len(topic.notified) == 1


def test_traceback_of_repeatedly_raised_error_does_not_grow(topic):
    registration = topic.register("a")
    topic.register("b", FENCE)
    for _ in range(100):
        with pytest.raises(ProducerFenced):
            registration.check()
    depth, traceback = 0, registration.refusal.__traceback__
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 10


def test_remembered_producer_is_idle_while_not_registered():
    registrations = ProducerRegistrations(TOPIC)
    registrations.remember("a")
    registration = registrations.register(ProducerRegistration(name="b"), 0)
    registrations.remember("b")
    assert registrations.longest_idle(9) == ["a"]
    again = registrations.register(ProducerRegistration(name="a"), 0)
    assert registrations.idle_count == 0
    registrations.leave(registration)
    registrations.leave(again)
    assert registrations.longest_idle(9) == ["b", "a"]
    registrations.forget("b")
    registrations.forget("a")
    assert registrations.idle_count == 0


def test_an_exclusive_producer_that_lost_its_connection_may_return_first(topic):
    holder = topic.register("holder", EXCLUSIVE)
    topic.queue("standby")
    awaited = topic.registrations.leave(holder, may_return=True)
    assert topic.notified == []
    # A producer that comes later waits, too.
    topic.queue("late")
    assert topic.register("holder", EXCLUSIVE, is_returning=True) is not None
    topic.registrations.stop_awaiting(awaited)
    assert list(topic.registrations) == ["holder"]
    assert topic.notified == []


@pytest.mark.parametrize("access", [SHARED, EXCLUSIVE])
def test_others_are_refused_while_an_exclusive_producer_may_return(topic, access):
    holder = topic.register("holder", EXCLUSIVE)
    awaited = topic.registrations.leave(holder, may_return=True)
    with pytest.raises(ProducerBusy, match="keeps the access for 10 s"):
        topic.register("other", access)
    topic.registrations.stop_awaiting(awaited)
    assert topic.register("other", access) is not None


def test_exclusive_fence_takes_the_access_of_a_producer_that_may_return(topic):
    holder = topic.register("holder", EXCLUSIVE)
    topic.registrations.leave(holder, may_return=True)
    assert topic.register("other", FENCE) is not None
    with pytest.raises(ProducerFenced):
        topic.register("holder", EXCLUSIVE, is_returning=True)


@pytest.mark.parametrize("access", [SHARED, EXCLUSIVE])
def test_an_exclusive_producer_of_before_fences_those_that_came_to_an_opened_topic(
    topic, access
):
    topic.registrations.await_return()
    topic.register("new", access)
    assert topic.register("earlier", EXCLUSIVE, is_returning=True) is not None
    assert list(topic.registrations) == ["earlier"]
    assert topic.notified == [("new", "fenced", ProducerFenced)]
    with pytest.raises(ProducerBusy):
        topic.register("newer", access)


def test_a_producer_that_returns_while_another_one_may_return_is_fenced(topic):
    topic.register("holder", EXCLUSIVE)
    other = topic.register("other", FENCE)
    topic.registrations.leave(other, may_return=True)
    with pytest.raises(ProducerBusy):
        topic.register("holder", EXCLUSIVE)
    with pytest.raises(ProducerFenced):
        topic.register("holder", EXCLUSIVE, is_returning=True)


def test_an_exclusive_producer_does_not_fence_others_of_before(topic):
    topic.registrations.await_return()
    topic.register("earlier", is_returning=True)
    with pytest.raises(ProducerFenced):
        topic.register("other", EXCLUSIVE, is_returning=True)


def test_a_standby_is_admitted_when_the_producer_does_not_return_in_time(topic):
    holder = topic.register("holder", EXCLUSIVE)
    topic.queue("standby")
    awaited = topic.registrations.leave(holder, may_return=True)
    topic.registrations.stop_awaiting(awaited)
    assert topic.notified == [("standby", "admitted", None)]
    with pytest.raises(ProducerFenced):
        topic.register("holder", EXCLUSIVE, is_returning=True)


def test_a_standby_is_admitted_at_once_when_the_producer_closes(topic):
    holder = topic.register("holder", EXCLUSIVE)
    topic.queue("standby")
    assert topic.registrations.leave(holder) is None
    assert topic.notified == [("standby", "admitted", None)]


def test_the_loss_of_a_shared_producer_admits_a_standby_at_once(topic):
    shared = topic.register("shared")
    topic.queue("standby")
    assert topic.registrations.leave(shared, may_return=True) is None
    assert topic.notified == [("standby", "admitted", None)]


@pytest.mark.parametrize("access", [SHARED, EXCLUSIVE])
def test_producers_of_before_return_to_an_opened_topic_before_a_standby(topic, access):
    awaited = topic.registrations.await_return()
    topic.queue("standby")
    if access is SHARED:
        with pytest.raises(ProducerBusy):
            topic.register("new")
    assert topic.register("earlier", access, is_returning=True) is not None
    topic.registrations.stop_awaiting(awaited)
    assert (list(topic.registrations), topic.notified) == (["earlier"], [])


def test_a_wait_for_a_return_that_is_over_does_not_end_the_next_one(topic):
    holder = topic.register("holder", EXCLUSIVE)
    first = topic.registrations.leave(holder, may_return=True)
    again = topic.register("holder", EXCLUSIVE, is_returning=True)
    topic.queue("standby")
    topic.registrations.leave(again, may_return=True)
    topic.registrations.stop_awaiting(first)
    assert topic.notified == []
