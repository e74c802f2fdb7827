"""The newest transaction of each query."""

import pytest

from pydanube.model.errors import TransactionFenced
from pydanube_broker.broker.pure.transactions import Transactions


def test_each_version_is_higher_than_those_before():
    transactions = Transactions(10)
    assert transactions.begin("q", 5) == 5
    assert transactions.begin("q", 5) == 6
    assert transactions.begin("q", 100) == 100
    assert transactions.begin("other", 5) == 5


def test_only_the_newest_transaction_may_be_committed():
    transactions = Transactions(10)
    first, second = transactions.begin("q", 5), transactions.begin("q", 5)
    transactions.check("q", second)
    with pytest.raises(TransactionFenced, match="a newer transaction of q has begun"):
        transactions.check("q", first)
    with pytest.raises(TransactionFenced, match="a newer transaction of q has begun"):
        transactions.check_not_fenced("q", first)
    transactions.check_not_fenced("q", second)
    transactions.check_not_fenced("unknown", first)


def test_unknown_transaction_began_before_a_restart():
    with pytest.raises(TransactionFenced, match="has restarted"):
        Transactions(10).check("q", 5)


def test_oldest_query_is_forgotten():
    transactions = Transactions(2)
    for query in ("a", "b", "a", "c"):
        transactions.begin(query, 1)
    transactions.check("a", 2)
    transactions.check("c", 1)
    with pytest.raises(TransactionFenced):
        transactions.check("b", 1)


def test_many_transactions_of_one_owner_fence_no_others():
    transactions = Transactions(3)
    own = transactions.begin("totals", 1, owner="user:a")
    for number in range(10):
        last = transactions.begin(f"{number}", 1, owner="user:b")
    transactions.check("totals", own)
    transactions.check("9", last)
    with pytest.raises(TransactionFenced):
        transactions.check("0", 1)
