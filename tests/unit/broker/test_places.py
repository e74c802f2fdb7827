import pytest

from pydanube.broker import places as places_module
from pydanube.broker.places import Places, Request
from pydanube.model.errors import (
    Closed,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess

SHARED = ProducerAccess.SHARED
EXCLUSIVE = ProducerAccess.EXCLUSIVE
WAIT = ProducerAccess.EXCLUSIVE_WAIT
FENCE = ProducerAccess.EXCLUSIVE_FENCE

TOPIC = TopicName.parse("/default/orders")


class Stage:
    """Places, and what everybody was told, in order."""

    def __init__(self):
        self.places = Places(TOPIC)
        self.told = []

    def request(self, name, access=SHARED, *, joins=False):
        def fenced(error):
            self.told.append((name, "fenced", type(error)))

        return Request(name=name, access=access, on_fenced=fenced, joins=joins)

    def enter(self, name, access=SHARED, *, count_max=0, joins=False):
        return self.places.enter(self.request(name, access, joins=joins), count_max)

    def wait(self, name):
        assert self.enter(name, WAIT) is None

        def told(error):
            self.told.append((name, "turn", None if error is None else type(error)))

        return self.places.wait(self.request(name, WAIT), told)


@pytest.fixture
def stage():
    return Stage()


def test_shared_producers_stand_beside_each_other(stage):
    assert stage.enter("a").is_held
    assert stage.enter("b").is_held
    assert list(stage.places) == ["a", "b"]


def test_a_newcomer_of_the_same_name_takes_the_place(stage):
    before = stage.enter("a")
    after = stage.enter("a")
    assert isinstance(before.refusal, ProducerFenced)
    assert after.is_held
    assert len(stage.places) == 1
    assert stage.told == [("a", "fenced", ProducerFenced)]


def test_who_joins_has_the_place_of_its_name(stage):
    before = stage.enter("a", joins=True)
    assert stage.enter("a", joins=True) is before
    assert stage.told == []


def test_who_numbers_its_messages_does_not_share_its_place(stage):
    attached = stage.enter("a", joins=True)
    opened = stage.enter("a")
    assert not attached.is_held
    assert stage.enter("a", joins=True) is not opened
    assert not opened.is_held


def test_only_new_names_count_for_the_limit(stage):
    stage.enter("a", count_max=2)
    stage.enter("b", count_max=2)
    with pytest.raises(QuotaExceeded, match="Current: 2, Limit: 2"):
        stage.enter("c", count_max=2)
    assert stage.enter("a", count_max=2).is_held
    assert stage.enter("b", count_max=1).is_held


def test_who_left_does_not_count(stage):
    place = stage.enter("a", count_max=1)
    stage.places.leave(place)
    assert stage.enter("b", count_max=1).is_held
    assert isinstance(place.refusal, Closed)
    assert stage.told == []


def test_an_exclusive_producer_is_refused_while_another_is_there(stage):
    stage.enter("a")
    with pytest.raises(ProducerBusy, match="another producer: a"):
        stage.enter("b", EXCLUSIVE)


@pytest.mark.parametrize("access", [SHARED, EXCLUSIVE])
def test_nobody_is_let_in_beside_an_exclusive_producer(stage, access):
    stage.enter("a", EXCLUSIVE)
    with pytest.raises(ProducerBusy):
        stage.enter("b", access)
    assert stage.enter("a", EXCLUSIVE).is_held


def test_when_the_exclusive_producer_is_gone_others_are_let_in(stage):
    place = stage.enter("a", EXCLUSIVE)
    stage.places.leave(place)
    assert stage.places.exclusive is None
    assert stage.enter("b").is_held


def test_a_producer_that_comes_back_as_shared_is_not_exclusive_any_more(stage):
    stage.enter("a", EXCLUSIVE)
    stage.enter("a")
    assert stage.enter("b").is_held


def test_who_is_fenced_is_told_and_loses_the_place(stage):
    fenced = [stage.enter("a"), stage.enter("b")]
    newcomer = stage.enter("c", FENCE)
    assert [type(place.refusal) for place in fenced] == [ProducerFenced] * 2
    assert stage.told == [
        ("a", "fenced", ProducerFenced),
        ("b", "fenced", ProducerFenced),
    ]
    assert stage.places.exclusive is newcomer
    assert list(stage.places) == ["c"]
    with pytest.raises(ProducerBusy):
        stage.enter("a")


def test_when_the_fenced_leaves_nothing_changes(stage):
    fenced = stage.enter("a")
    newcomer = stage.enter("b", FENCE)
    stage.places.leave(fenced)
    assert isinstance(fenced.refusal, ProducerFenced)
    assert newcomer.is_held


def test_turns_come_in_the_order_of_arrival(stage):
    first = stage.enter("a")
    second, third = stage.wait("b"), stage.wait("c")
    stage.places.leave(first)
    assert stage.told == [("b", "turn", None)]
    assert second.place is stage.places.exclusive
    stage.places.leave(second.place)
    assert stage.told[1:] == [("c", "turn", None)]
    assert third.place.is_held


def test_a_turn_comes_when_the_last_of_the_others_is_gone(stage):
    first, second = stage.enter("a"), stage.enter("b")
    stage.wait("c")
    stage.places.leave(first)
    assert stage.told == []
    stage.places.leave(second)
    assert stage.told == [("c", "turn", None)]


def test_nobody_overtakes_those_who_wait(stage):
    stage.enter("a")
    stage.wait("b")
    with pytest.raises(ProducerBusy, match="b waits"):
        stage.enter("c")
    with pytest.raises(ProducerBusy):
        stage.enter("d", EXCLUSIVE)
    assert stage.enter("a").is_held


def test_a_producer_may_wait_for_the_others_to_leave_its_own_side(stage):
    mine, other = stage.enter("a"), stage.enter("b")
    waiting = stage.wait("a")
    stage.places.leave(other)
    assert waiting.place is stage.places.exclusive
    assert not mine.is_held
    assert stage.told == [("a", "turn", None), ("a", "fenced", ProducerFenced)]


def test_who_withdraws_does_not_hold_up_the_others(stage):
    first = stage.enter("a")
    second, third = stage.wait("b"), stage.wait("c")
    stage.places.withdraw(second)
    stage.places.leave(first)
    assert stage.told == [("c", "turn", None)]
    assert third.place.is_held


def test_who_withdraws_may_let_somebody_in(stage):
    first = stage.enter("a")
    ahead, waiting = stage.wait("b"), None
    waiting = stage.places.wait(
        stage.request("a", WAIT), lambda error: stage.told.append(("a", error))
    )
    assert waiting.place is None
    stage.places.withdraw(ahead)
    assert waiting.place is stage.places.exclusive
    assert not first.is_held


def test_who_withdraws_at_the_turn_passes_it_on(stage):
    first = stage.enter("a")
    second, third = stage.wait("b"), stage.wait("c")
    stage.places.leave(first)
    stage.places.withdraw(second)
    assert stage.told == [("b", "turn", None), ("c", "turn", None)]
    assert not second.place.is_held
    assert third.place.is_held


def test_waiting_again_under_the_same_name_keeps_the_turn(stage):
    first = stage.enter("a")
    lost = stage.wait("b")
    stage.wait("c")
    again = stage.wait("b")
    stage.places.withdraw(lost)
    stage.places.leave(first)
    assert stage.told == [("b", "turn", ProducerFenced), ("b", "turn", None)]
    assert again.place.is_held


def test_those_who_wait_are_not_fenced(stage):
    stage.enter("a")
    waiting = stage.wait("b")
    newcomer = stage.enter("c", FENCE)
    assert waiting.place is None
    stage.places.leave(newcomer)
    assert waiting.place.is_held


def test_so_many_may_wait_and_no_more(stage, monkeypatch):
    monkeypatch.setattr(places_module, "WAITING_MAX", 2)
    stage.enter("a")
    stage.wait("b")
    stage.wait("c")
    with pytest.raises(ProducerBusy, match="2 producers wait"):
        stage.wait("d")


def test_when_the_topic_goes_everybody_is_told(stage):
    held = stage.enter("a")
    waiting = stage.wait("b")
    stage.places.close(TopicNotFound("gone"))
    assert isinstance(held.refusal, TopicNotFound)
    assert waiting.place is None
    assert stage.told == [("b", "turn", TopicNotFound), ("a", "fenced", TopicNotFound)]
    assert list(stage.places) == []


def test_a_place_is_taken_from_its_producer_once(stage):
    place = stage.enter("a")
    stage.places.fence(place, ProducerFenced("first"))
    stage.places.fence(place, ProducerFenced("second"))
    assert str(place.refusal) == "first"
    assert len(stage.told) == 1


def test_an_error_that_is_raised_again_and_again_does_not_grow(stage):
    place = stage.enter("a")
    stage.enter("b", FENCE)
    for _ in range(100):
        with pytest.raises(ProducerFenced):
            place.check()
    depth, traceback = 0, place.refusal.__traceback__
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 10


def test_a_remembered_producer_is_idle_whenever_it_has_no_place():
    places = Places(TOPIC)
    places.remember("a")
    place = places.enter(Request(name="b"), 0)
    places.remember("b")
    assert places.longest_idle(9) == ["a"]
    again = places.enter(Request(name="a"), 0)
    assert places.idle_count == 0
    places.leave(place)
    places.leave(again)
    assert places.longest_idle(9) == ["b", "a"]
    places.forget("b")
    places.forget("a")
    assert places.idle_count == 0
