"""Messages that wait, block or are parked; see also the scenarios."""

from __future__ import annotations

import pytest

from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.deferred import DeferredMessages, redelivery_delay_s
from pydanube_broker.dispatch.effects import Drop, Park
from pydanube_broker.dispatch.message_spans import Batch, MessageSpan

BATCH = Batch(0, 100, 1000)
DEAD = "/default/dead"


def failed(base, end, failures=1, **state):
    """Return a span that failed *failures* times."""
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


def deferred_with(cursor=None, **policy):
    return DeferredMessages(cursor or Cursor(0), FailurePolicy(**policy))


def places(spans):
    return [(each.base, each.end) for each in spans]


def test_failed_message_without_delay_is_ready_at_once():
    deferred, effects = deferred_with(redelivery_delay_s=0.0), []
    assert deferred.fail(failed(0, 5), 10.0, 0.0, effects)
    assert (effects, len(deferred)) == ([], 0)
    assert not deferred.fail(failed(0, 5), 10.0, 3.0, effects)
    assert deferred.next_time() == 13.0


def test_failed_message_is_ready_after_its_delay():
    deferred, effects = deferred_with(redelivery_delay_s=2.0), []
    deferred.fail(failed(0, 5), 10.0, 0.0, effects)
    deferred.fail(failed(5, 6, failures=2), 10.0, 0.0, effects)
    assert (deferred.count, deferred.next_time()) == (6, 12.0)
    assert places(deferred.take_due(12.0, effects)) == [(0, 5)]
    assert places(deferred.take_due(14.0, effects)) == [(5, 6)]
    assert effects == []


def test_message_that_failed_too_often_is_given_up():
    deferred, effects = deferred_with(redeliveries_max=1, poison=PoisonPolicy.DROP), []
    deferred.fail(failed(3, 5, failures=2), 0.0, 0.0, effects)
    assert effects == [Drop(3, 5, "bad")]
    assert len(deferred) == 0


def test_drop_marks_open_messages_as_done():
    cursor, effects = Cursor(0), []
    deferred = deferred_with(cursor, redeliveries_max=0, poison=PoisonPolicy.DROP)
    cursor.mark(4, 6)
    span = failed(2, 9)
    span.open_count = 5
    deferred.fail(span, 0.0, 0.0, effects)
    assert effects == [Drop(2, 4, "bad"), Drop(6, 9, "bad")]
    assert list(cursor.done) == [(2, 9)]


def test_parking_skips_done_messages():
    cursor, effects = Cursor(0), []
    deferred = deferred_with(
        cursor,
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    cursor.mark(4, 6)
    span = failed(2, 9)
    span.open_count = 5
    deferred.fail(span, 0.0, 0.0, effects)
    assert effects == [Park(2, 4, 1, "bad"), Park(6, 9, 1, "bad")]
    assert (deferred.parked.count, len(deferred.parked)) == (5, 2)


def test_mark_affects_only_messages_in_the_same_state():
    cursor, effects = Cursor(0), []
    deferred = deferred_with(
        cursor,
        redeliveries_max=1,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    deferred.fail(failed(0, 5, failures=2), 0.0, 0.0, effects)
    deferred.fail(failed(5, 10), 0.0, 0.0, effects)
    assert deferred.parked.mark(3, 8) == 2
    assert deferred.parked.mark(3, 8) == 0
    assert list(cursor.done) == [(3, 5)]
    assert (deferred.parked.count, deferred.waiting.count) == (3, 5)


def test_failed_parking_is_retried():
    deferred, effects = (
        deferred_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    deferred.fail(failed(0, 5), 0.0, 0.0, effects)
    deferred.retry_parking(3, 99, retry_at=7.0)
    assert deferred.next_time() == 7.0
    effects.clear()
    assert deferred.take_due(7.0, effects) == []
    assert effects == [Park(3, 5, 1, "bad")]
    assert deferred.next_time() is None


def test_ack_marks_deferred_messages_in_any_state():
    cursor, effects = Cursor(0), []
    deferred = deferred_with(
        cursor,
        redeliveries_max=1,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    deferred.fail(failed(0, 2), 0.0, 0.0, effects)
    deferred.fail(failed(2, 4, failures=2), 0.0, 0.0, effects)
    deferred.blocked.add(failed(4, 6))
    assert deferred.mark(1, 5) == 4
    assert list(cursor.done) == [(1, 5)]
    assert (deferred.waiting.count, deferred.parked.count, deferred.blocked.count) == (
        1,
        0,
        1,
    )


@pytest.mark.parametrize("poison", PoisonPolicy)
def test_policy_with_more_redeliveries_frees_blocked_messages(poison):
    deferred, effects = deferred_with(redeliveries_max=0), []
    deferred.fail(failed(5, 9), 0.0, 0.0, effects)
    deferred.fail(failed(0, 5), 0.0, 0.0, effects)
    patient = FailurePolicy(redeliveries_max=1, poison=poison, dead_letter_topic=DEAD)
    assert places(deferred.set_policy(patient, 0.0, effects)) == [(0, 5), (5, 9)]
    assert (effects, len(deferred)) == ([], 0)


def test_policy_with_fewer_redeliveries_gives_up_waiting_messages():
    deferred, effects = deferred_with(), []
    deferred.fail(failed(0, 5), 0.0, 0.0, effects)
    deferred.delay(MessageSpan(5, 6, 1, BATCH, open_count=1), 99.0)
    strict = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    assert deferred.set_policy(strict, 0.0, effects) == []
    assert effects == [Drop(0, 5, "bad")]
    assert deferred.next_time() == 99.0


def test_new_longest_delay_applies_to_failed_but_not_to_delayed_messages():
    deferred, effects = (
        deferred_with(redelivery_delay_s=50.0, backoff=Backoff.FIXED),
        [],
    )
    deferred.fail(failed(0, 5), 0.0, 0.0, effects)
    deferred.delay(MessageSpan(5, 6, 1, BATCH, open_count=1), 99.0)
    quick = FailurePolicy(redelivery_delay_s_max=10.0)
    deferred.set_policy(quick, 1.0, effects)
    assert deferred.next_time() == 11.0
    deferred.take_due(11.0, effects)
    assert deferred.next_time() == 99.0


def test_new_policy_does_not_stop_messages_being_parked():
    deferred, effects = (
        deferred_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    deferred.fail(failed(0, 2), 0.0, 0.0, effects)
    deferred.fail(failed(2, 4), 0.0, 0.0, effects)
    deferred.retry_parking(2, 4, retry_at=50.0)
    effects.clear()
    dropping = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    deferred.set_policy(dropping, 0.0, effects)
    # The policy applies only to messages whose parking had failed.
    assert effects == [Drop(2, 4, "bad")]
    assert deferred.parked.mark(0, 2) == 2


def test_message_parked_for_a_failure_does_not_expire():
    deferred, effects = (
        deferred_with(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        ),
        [],
    )
    deferred.fail(failed(0, 2, expires=5.0), 0.0, 0.0, effects)
    deferred.retry_parking(0, 2, retry_at=9.0)
    effects.clear()
    assert deferred.withdraw(0, 2) == []
    deferred.take_due(9.0, effects)
    assert effects == [Park(0, 2, 1, "bad")]


def test_expired_message_is_dropped_unless_the_policy_parks_it():
    effects = []
    deferred_with(dead_letter_expired=True).expire(failed(0, 2), effects)
    deferred_with(dead_letter_topic=DEAD).expire(failed(0, 2), effects)
    assert effects == [Drop(0, 2, "expired", is_expired=True)] * 2
    effects.clear()
    deferred = deferred_with(dead_letter_expired=True, dead_letter_topic=DEAD)
    deferred.expire(failed(0, 2), effects)
    assert effects == [Park(0, 2, 1, "expired", is_expired=True)]
    # From then on, the policy for expired messages applies.
    deferred.retry_parking(0, 2, retry_at=1.0)
    effects.clear()
    deferred.set_policy(FailurePolicy(redeliveries_max=99), 0.0, effects)
    assert effects == [Drop(0, 2, "expired", is_expired=True)]


def test_clear_removes_all_spans():
    deferred, effects = deferred_with(redeliveries_max=1), []
    deferred.fail(failed(0, 2), 0.0, 0.0, effects)
    deferred.fail(failed(2, 4, failures=2), 0.0, 0.0, effects)
    deferred.clear()
    assert (len(deferred), deferred.count, deferred.next_time()) == (0, 0, None)


def delays(policy, count, requested_s=0.0):
    return [redelivery_delay_s(policy, n, requested_s) for n in range(1, count + 1)]


def test_exponential_delay_doubles_up_to_the_longest():
    assert delays(FailurePolicy(), 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_fixed_delay_does_not_grow():
    policy = FailurePolicy(redelivery_delay_s=3.0, backoff=Backoff.FIXED)
    assert delays(policy, 3) == [3, 3, 3]


def test_delay_is_limited_to_the_longest():
    policy = FailurePolicy(
        redelivery_delay_s=90.0, redelivery_delay_s_max=60.0, backoff=Backoff.FIXED
    )
    assert delays(policy, 1) == [60]


def test_longer_requested_delay_is_used_up_to_the_longest():
    assert delays(FailurePolicy(), 4, requested_s=3.0) == [3, 3, 4, 8]
    assert delays(FailurePolicy(), 1, requested_s=1e9) == [60]


def test_delay_is_finite_for_any_number_of_failures():
    assert redelivery_delay_s(FailurePolicy(), 1_000_000) == 60
    assert redelivery_delay_s(FailurePolicy(redelivery_delay_s=0.0), 1_000_000) == 0


def test_dead_letter_policy_without_a_topic_blocks():
    deferred = deferred_with(redeliveries_max=0, poison=PoisonPolicy.DEAD_LETTER)
    effects = []
    assert not deferred.fail(failed(0, 2), 0.0, 0.0, effects)
    assert (effects, deferred.blocked.ranges()) == ([], ((0, 2),))
