"""The credit that a consumer grants to the broker."""

import pytest

from pydanube.client.credit import OVERDRAFT_BYTES_MAX, Credit
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
