"""Invariants of producer registrations under any sequence of requests."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pydanube.model.errors import ProducerBusy, QuotaExceeded
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess
from pydanube_broker.broker.pure.producer_registrations import (
    ProducerRegistration,
    ProducerRegistrations,
)

NAMES = st.sampled_from("abcde")
PRODUCERS_MAX = 3


class Producers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.registrations = ProducerRegistrations(TopicName.parse("/default/orders"))
        self.registered = []
        self.queued = []
        self.fenced = []

    @rule(
        name=NAMES,
        access=st.sampled_from(list(ProducerAccess)),
        is_joining=st.booleans(),
    )
    def register(self, name, access, is_joining):
        request = ProducerRegistration(
            name=name,
            access=access,
            is_joining=is_joining,
            on_fenced=self.fenced.append,
        )
        try:
            registration = self.registrations.register(request, PRODUCERS_MAX)
        except (ProducerBusy, QuotaExceeded):
            return
        if registration is None:
            calls = []
            queued = self.registrations.queue(request, calls.append)
            # It takes over the position of a queued producer with the same name.
            names = [each.request.name for each, _ in self.queued]
            if name in names:
                at = names.index(name)
                _, earlier_calls = self.queued[at]
                assert len(earlier_calls) == 1
                self.queued[at] = (queued, calls)
            else:
                self.queued.append((queued, calls))
        elif registration not in self.registered:
            self.registered.append(registration)
        self.update_queued()

    @rule(data=st.data())
    def leave(self, data):
        if self.registered:
            self.registrations.leave(data.draw(st.sampled_from(self.registered)))
        self.update_queued()

    @rule(data=st.data())
    def cancel(self, data):
        if self.queued:
            drawn = data.draw(st.sampled_from(self.queued))
            self.queued.remove(drawn)
            self.registrations.cancel(drawn[0])
        self.update_queued()

    def update_queued(self):
        """Drop the producers that were notified."""
        for queued, calls in list(self.queued):
            if calls == [None]:
                assert queued.registration is not None
                self.queued.remove((queued, calls))
                self.registered.append(queued.registration)
            elif calls:
                assert queued.registration is None
                self.queued.remove((queued, calls))

    @invariant()
    def names_of_valid_registrations_are_registered(self):
        registered = [
            registration for registration in self.registered if registration.is_valid
        ]
        assert sorted(registration.name for registration in registered) == sorted(
            self.registrations
        )

    @invariant()
    def exclusive_registration_is_the_only_one(self):
        exclusive = self.registrations.exclusive
        assert exclusive is None or list(self.registrations) == [exclusive.name]
        assert len(self.registrations) <= PRODUCERS_MAX

    @invariant()
    def queue_advances_when_possible(self):
        if self.queued:
            first = self.queued[0][0].request.name
            assert any(name != first for name in self.registrations)


TestProducers = pytest.mark.slow(Producers.TestCase)
