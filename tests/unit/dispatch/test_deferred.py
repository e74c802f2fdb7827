"""What waits, blocks or is parked; see also the scenarios."""

from __future__ import annotations

import pytest

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.deferred import DeferredMessages
from pydanube.dispatch.effects import Drop, Park
from pydanube.dispatch.message_spans import Batch, MessageSpan
from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy

BATCH = Batch(0, 100, 1000)
DEAD = "/default/dead"


def failed(base, end, failures=1, **state):
    """A span that was delivered and given back so often."""
    return MessageSpan(
        base,
        end,
        failures + 1,
        BATCH,
        failures=failures,
        reason="bad",
        open_count=end - base,
        **state,
    )


def aside_with(cursor=None, **policy):
    return DeferredMessages(cursor or Cursor(0), FailurePolicy(**policy))


def places(spans):
    return [(each.base, each.end) for each in spans]


def test_without_a_delay_what_failed_is_ready_at_once():
    aside, effects = aside_with(redelivery_delay_s=0.0), []
    assert aside.fail(failed(0, 5), 10.0, 0.0, effects)
    assert (effects, len(aside)) == ([], 0)
    assert not aside.fail(failed(0, 5), 10.0, 3.0, effects)
    assert aside.next_time() == 13.0


def test_what_failed_is_ready_after_its_delay():
    aside, effects = aside_with(redelivery_delay_s=2.0), []
    aside.fail(failed(0, 5), 10.0, 0.0, effects)
    aside.fail(failed(5, 6, failures=2), 10.0, 0.0, effects)
    assert (aside.count, aside.next_time()) == (6, 12.0)
    assert places(aside.take_due(12.0, effects)) == [(0, 5)]
    assert places(aside.take_due(14.0, effects)) == [(5, 6)]
    assert effects == []


def test_what_failed_too_often_is_given_up_by_the_policy():
    aside, effects = aside_with(redeliveries_max=1, poison=PoisonPolicy.DROP), []
    aside.fail(failed(3, 5, failures=2), 0.0, 0.0, effects)
    assert effects == [Drop(3, 5, "bad")]
    assert len(aside) == 0


def test_dropping_makes_done_and_leaves_out_what_was_done():
    cursor, effects = Cursor(0), []
    aside = aside_with(cursor, redeliveries_max=0, poison=PoisonPolicy.DROP)
    cursor.mark(4, 6)
    span = failed(2, 9)
    span.open_count = 5
    aside.fail(span, 0.0, 0.0, effects)
    assert effects == [Drop(2, 4, "bad"), Drop(6, 9, "bad")]
    assert list(cursor.done) == [(2, 9)]


def test_parking_leaves_out_what_was_done():
    cursor, effects = Cursor(0), []
    aside = aside_with(
        cursor,
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    cursor.mark(4, 6)
    span = failed(2, 9)
    span.open_count = 5
    aside.fail(span, 0.0, 0.0, effects)
    assert effects == [Park(2, 4, 1, "bad"), Park(6, 9, 1, "bad")]
    assert (aside.parked.count, len(aside.parked)) == (5, 2)


def test_only_what_is_parked_is_done_by_parking():
    cursor, effects = Cursor(0), []
    aside = aside_with(
        cursor,
        redeliveries_max=1,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    aside.fail(failed(0, 5, failures=2), 0.0, 0.0, effects)
    aside.fail(failed(5, 10), 0.0, 0.0, effects)
    assert aside.mark_parked(3, 8) == 2
    assert aside.mark_parked(3, 8) == 0
    assert list(cursor.done) == [(3, 5)]
    assert (aside.parked.count, aside.waiting.count) == (3, 5)


def test_what_could_not_be_parked_is_parked_again_in_time():
    aside, effects = (
        aside_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    aside.fail(failed(0, 5), 0.0, 0.0, effects)
    aside.retry_parking(3, 99, retry_at=7.0)
    assert aside.next_time() == 7.0
    effects.clear()
    assert aside.take_due(7.0, effects) == []
    assert effects == [Park(3, 5, 1, "bad")]
    assert aside.next_time() is None


def test_an_acknowledgement_finds_it_in_any_state():
    cursor, effects = Cursor(0), []
    aside = aside_with(
        cursor,
        redeliveries_max=1,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    aside.fail(failed(0, 2), 0.0, 0.0, effects)
    aside.fail(failed(2, 4, failures=2), 0.0, 0.0, effects)
    aside.blocked.add(failed(4, 6))
    assert aside.mark(1, 5) == 4
    assert list(cursor.done) == [(1, 5)]
    assert (aside.waiting.count, aside.parked.count, aside.blocked.count) == (1, 0, 1)


@pytest.mark.parametrize("poison", PoisonPolicy)
def test_a_more_patient_policy_frees_what_blocks(poison):
    aside, effects = aside_with(redeliveries_max=0), []
    aside.fail(failed(5, 9), 0.0, 0.0, effects)
    aside.fail(failed(0, 5), 0.0, 0.0, effects)
    patient = FailurePolicy(redeliveries_max=1, poison=poison, dead_letter_topic=DEAD)
    assert places(aside.set_policy(patient, 0.0, effects)) == [(0, 5), (5, 9)]
    assert (effects, len(aside)) == ([], 0)


def test_a_less_patient_policy_gives_up_what_waits():
    aside, effects = aside_with(), []
    aside.fail(failed(0, 5), 0.0, 0.0, effects)
    aside.delay(MessageSpan(5, 6, 1, BATCH, open_count=1), 99.0)
    strict = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    assert aside.set_policy(strict, 0.0, effects) == []
    assert effects == [Drop(0, 5, "bad")]
    assert aside.next_time() == 99.0


def test_a_new_longest_delay_holds_for_what_failed_but_not_for_what_was_delayed():
    aside, effects = aside_with(redelivery_delay_s=50.0, backoff=Backoff.FIXED), []
    aside.fail(failed(0, 5), 0.0, 0.0, effects)
    aside.delay(MessageSpan(5, 6, 1, BATCH, open_count=1), 99.0)
    quick = FailurePolicy(redelivery_delay_s_max=10.0)
    aside.set_policy(quick, 1.0, effects)
    assert aside.next_time() == 11.0
    aside.take_due(11.0, effects)
    assert aside.next_time() == 99.0


def test_what_is_on_its_way_to_the_dead_letters_arrives_whatever_the_new_policy():
    aside, effects = (
        aside_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    aside.fail(failed(0, 2), 0.0, 0.0, effects)
    aside.fail(failed(2, 4), 0.0, 0.0, effects)
    aside.retry_parking(2, 4, retry_at=50.0)
    effects.clear()
    dropping = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    aside.set_policy(dropping, 0.0, effects)
    # Only of what had failed to arrive there is something to decide.
    assert effects == [Drop(2, 4, "bad")]
    assert aside.mark_parked(0, 2) == 2


def test_who_is_parked_for_a_failure_stays_so_when_its_time_is_over():
    aside, effects = (
        aside_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    aside.fail(failed(0, 2, expires=5.0), 0.0, 0.0, effects)
    aside.retry_parking(0, 2, retry_at=9.0)
    effects.clear()
    assert aside.withdraw_expired(0, 2) == []
    aside.take_due(9.0, effects)
    assert effects == [Park(0, 2, 1, "bad")]


def test_what_expired_is_dropped_unless_the_policy_wants_it_parked():
    effects = []
    aside_with(dead_letter_expired=True).expire(failed(0, 2), effects)
    aside_with(dead_letter_topic=DEAD).expire(failed(0, 2), effects)
    assert effects == [Drop(0, 2, "expired", is_expired=True)] * 2
    effects.clear()
    aside = aside_with(dead_letter_expired=True, dead_letter_topic=DEAD)
    aside.expire(failed(0, 2), effects)
    assert effects == [Park(0, 2, 1, "expired", is_expired=True)]
    # And that is what it is judged by from then on.
    aside.retry_parking(0, 2, retry_at=1.0)
    effects.clear()
    aside.set_policy(FailurePolicy(redeliveries_max=99), 0.0, effects)
    assert effects == [Drop(0, 2, "expired", is_expired=True)]


def test_nothing_is_left_after_all_was_forgotten():
    aside, effects = aside_with(redeliveries_max=1), []
    aside.fail(failed(0, 2), 0.0, 0.0, effects)
    aside.fail(failed(2, 4, failures=2), 0.0, 0.0, effects)
    aside.clear()
    assert (len(aside), aside.count, aside.next_time()) == (0, 0, None)
