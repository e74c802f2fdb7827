"""The share of a turn of the event loop that one connection gets."""

from pydanube.wire.turn_budget import TurnBudget


def test_a_turn_budget_is_spent_after_its_units():
    budget = TurnBudget(3)
    for _ in range(2):
        budget.spend(1)
    assert not budget.is_spent
    budget.spend(1)
    assert budget.is_spent


def test_a_turn_budget_that_is_overdrawn_is_paid_off_over_several_turns():
    budget = TurnBudget(10)
    budget.spend(35)
    turns = 0
    while budget.is_spent:
        budget.refill()
        turns += 1
    assert turns == 3


def test_a_turn_budget_does_not_save_what_was_not_spent():
    budget = TurnBudget(2)
    for _ in range(5):
        budget.refill()
    budget.spend(2)
    assert budget.is_spent
