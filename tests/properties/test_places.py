"""Who publishes to a topic, whatever producers do."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pydanube.broker.places import Places, Request
from pydanube.model.errors import ProducerBusy, QuotaExceeded
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess

NAMES = st.sampled_from("abcde")
COUNT_MAX = 3


class Producers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.places = Places(TopicName.parse("/default/orders"))
        self.held = []
        self.waiting = []
        self.fenced = []

    @rule(name=NAMES, access=st.sampled_from(list(ProducerAccess)), joins=st.booleans())
    def come(self, name, access, joins):
        request = Request(
            name=name, access=access, joins=joins, on_fenced=self.fenced.append
        )
        try:
            place = self.places.enter(request, COUNT_MAX)
        except (ProducerBusy, QuotaExceeded):
            return
        if place is None:
            told = []
            waiting = self.places.wait(request, told.append)
            # Who waits already under this name gives its turn to the newcomer.
            names = [each.request.name for each, _ in self.waiting]
            if name in names:
                at = names.index(name)
                _, told_before = self.waiting[at]
                assert len(told_before) == 1
                self.waiting[at] = (waiting, told)
            else:
                self.waiting.append((waiting, told))
        elif place not in self.held:
            self.held.append(place)
        self.take_notice()

    @rule(data=st.data())
    def leave(self, data):
        if self.held:
            self.places.leave(data.draw(st.sampled_from(self.held)))
        self.take_notice()

    @rule(data=st.data())
    def withdraw(self, data):
        if self.waiting:
            drawn = data.draw(st.sampled_from(self.waiting))
            self.waiting.remove(drawn)
            self.places.withdraw(drawn[0])
        self.take_notice()

    def take_notice(self):
        """Those who were told do not wait any more."""
        for waiting, told in list(self.waiting):
            if told == [None]:
                assert waiting.place is not None
                self.waiting.remove((waiting, told))
                self.held.append(waiting.place)
            elif told:
                assert waiting.place is None
                self.waiting.remove((waiting, told))

    @invariant()
    def whoever_may_publish_is_known_by_name(self):
        held = [place for place in self.held if place.is_held]
        assert sorted(place.name for place in held) == sorted(self.places)

    @invariant()
    def an_exclusive_producer_is_alone(self):
        exclusive = self.places.exclusive
        assert exclusive is None or list(self.places) == [exclusive.name]
        assert len(self.places) <= COUNT_MAX

    @invariant()
    def a_turn_comes_as_soon_as_it_can(self):
        if self.waiting:
            first = self.waiting[0][0].request.name
            assert any(name != first for name in self.places)


TestProducers = pytest.mark.slow(Producers.TestCase)
