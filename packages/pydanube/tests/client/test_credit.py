"""The credit that a consumer grants to the broker."""

import pytest

from pydanube.client.pure.credit import OVERDRAFT_BYTES_MAX, Credit, SharedCredit
from pydanube.model.errors import ProtocolViolation


@pytest.fixture
def credit():
    credit = Credit(100, 1000)
    assert credit.grant_all() == (100, 1000)
    return credit


def test_credit_of_messages_that_were_handed_out_is_granted_again(credit):
    credit.use(60, 300)
    credit.free(20, 100)
    credit.free(10, 50)
    assert credit.take_free() == (30, 150)
    assert credit.take_free() == (0, 0)
    credit.use(70, 700)
    with pytest.raises(ProtocolViolation, match="1 messages"):
        credit.use(1, 1)


def test_free_credit_counts_as_part_of_messages_or_bytes(credit):
    assert not credit.has_free(2)
    credit.free(49, 499)
    assert not credit.has_free(2)
    credit.free(1, 0)
    assert credit.has_free(2)
    credit.take_free()
    credit.free(0, 500)
    assert credit.has_free(2)
    assert not credit.has_free(1)


def test_bytes_may_exceed_the_credit_by_the_estimate_of_a_correct_broker(credit):
    credit.use(1, 1000 + OVERDRAFT_BYTES_MAX)
    with pytest.raises(ProtocolViolation, match="bytes more than"):
        credit.use(1, 1)


def test_new_channel_starts_with_all_credit(credit):
    credit.use(100, 1000)
    credit.free(10, 10)
    assert credit.grant_all() == (100, 1000)
    assert credit.take_free() == (0, 0)
    credit.use(100, 1000)


def test_credit_beyond_a_lower_maximum_is_kept_when_it_becomes_free(credit):
    credit.change_max(40, 1000)
    credit.use(100, 100)
    credit.free(60, 60)
    assert credit.take_free() == (0, 60)
    credit.free(40, 40)
    assert credit.committed == (0, 960)
    assert credit.take_free() == (40, 40)


def test_shared_credit_is_divided_among_those_that_join():
    shared = SharedCredit(100, 1000)
    shared.divide(4)
    members = [shared.join() for _ in range(4)]
    assert [each.grant_all() for each in members] == [(25, 250)] * 4
    shared.leave(members.pop())
    shared.divide(3)
    assert [each.take_free() for each in members] == [(8, 83)] * 3


def test_idle_consumers_keep_their_credit_until_twice_the_maximum_is_granted():
    shared = SharedCredit(100, 1000)
    granted = 0
    for count in range(1, 200):
        shared.divide(count)
        granted += shared.join().grant_all()[0]
    # Each has at least one message.
    assert granted <= 200 + 199


def test_shares_become_even_when_messages_are_handed_out():
    shared = SharedCredit(100, 1000)
    members = []
    for count in (1, 2):
        shared.divide(count)
        members.append(shared.join())
        members[-1].grant_all()
    first, second = members
    first.use(100, 1000)
    first.free(100, 1000)
    assert first.take_free() == second.maximum == (50, 500)


def test_every_consumer_has_credit_for_one_message():
    shared = SharedCredit(1, 1)
    shared.divide(3)
    assert [shared.join().grant_all() for _ in range(3)] == [(1, 1)] * 3
