"""A transactional producer is fenced by the next, and its records come in order."""

from __future__ import annotations

from pydanube.model.names import TopicName
from pydanube_kafka.pure.transactions import (
    SEQUENCE_END,
    OffsetOfGroup,
    Order,
    ProducerState,
    Sequences,
    TransactionError,
    decode_state,
    encode_state,
)

T = TopicName.parse("/default/t")
BEGUN = 1_000_000


def new_state():
    return ProducerState(producer_id=7, epoch=1, timeout_s=10.0, version=100)


def open_state():
    return new_state().opened(100, BEGUN)


def test_requests_with_another_id_or_epoch_are_fenced():
    state = new_state()
    assert state.check(7, 1) is None
    for claim in ((8, 1), (7, 0), (7, 2)):
        assert state.check(*claim) is TransactionError.FENCED


def test_a_producer_whose_answer_was_lost_may_name_the_epoch_before():
    state = new_state()
    assert state.may_continue(7, 1)
    assert state.may_continue(7, 0)
    assert not state.may_continue(8, 1)
    state = open_state()
    assert state.may_continue(7, 1)
    assert not state.may_continue(7, 0)
    assert not state.ended(is_committed=True).may_continue(7, 0)


def test_requests_within_a_transaction_need_one_that_is_open():
    assert new_state().check_open(7, 1) is TransactionError.NOT_OPEN
    assert open_state().check_open(7, 1) is None
    ended = open_state().ended(is_committed=True)
    assert ended.check_open(7, 1) is TransactionError.NOT_OPEN
    assert (ended.version, ended.was_committed) == (None, True)


def test_a_transaction_whose_version_is_decided_has_ended():
    state = open_state().with_part("p", "a")
    for decided in (None, 99, 101):
        assert state.settled(decided) is state
    assert state.settled(100) == open_state().ended(is_committed=True)


def test_a_transaction_is_late_when_its_time_is_over():
    assert not new_state().is_late(2**60)
    assert open_state().begun_at == BEGUN
    assert not open_state().is_late(BEGUN + 9_999_999)
    assert open_state().is_late(BEGUN + 10_000_000)
    given_up = open_state().given_up(101)
    assert not given_up.is_late(2**60)
    assert given_up.check(7, 1) is TransactionError.FENCED
    assert given_up.may_continue(7, 1)


def test_a_transaction_begins_with_nothing():
    offset = OffsetOfGroup("/default/t", "g", 3, 5)
    full = open_state().with_partitions({"/default/t": 4}).with_part("p", "a")
    full = full.with_offsets([offset])
    assert full.ended(is_committed=False).opened(101, BEGUN) == ProducerState(
        producer_id=7,
        epoch=1,
        timeout_s=10.0,
        version=101,
        is_open=True,
        deadline=BEGUN + 10_000_000,
        was_committed=False,
    )
    assert decode_state(encode_state(full)) == full


def test_what_was_added_first_counts():
    state = open_state().with_partitions({"/default/t": 4})
    state = state.with_partitions({"/default/t": 5, "/default/u": 6})
    assert state.partitions == {"/default/t": 4, "/default/u": 6}
    state = state.with_offsets([OffsetOfGroup("/default/t", "g", 3, 5)])
    state = state.with_offsets([OffsetOfGroup("/default/t", "g", 4, 9)])
    # The cursor from which the records were read.
    assert state.offsets == (OffsetOfGroup("/default/t", "g", 3, 9),)


def test_batches_are_taken_in_order_and_once_over_transactions():
    sequences = Sequences()
    assert sequences.place(T, 4, BEGUN, 0, 3) is Order.NEXT
    assert sequences.place(T, 4, BEGUN, 0, 3) is Order.REPEATED
    assert sequences.place(T, 4, BEGUN, 5, 1) is Order.GAP
    assert sequences.place(T, 4, BEGUN + 9, 3, 2) is Order.NEXT


def test_a_partition_that_comes_from_another_broker_begins_with_any_sequence():
    sequences = Sequences()
    assert sequences.place(T, 4, BEGUN, 0, 3) is Order.NEXT
    assert sequences.place(T, 6, BEGUN, 9, 1) is Order.NEXT
    assert sequences.place(T, 6, BEGUN, 9, 1) is Order.REPEATED


def test_no_batch_overtakes_one_that_was_refused():
    for claim in (None, 6):
        sequences = Sequences()
        sequences.refuse(T, claim, 3, BEGUN + 1)
        sequences.refuse(T, claim, 5, BEGUN + 2)
        assert sequences.place(T, 6, BEGUN, 5, 1) is Order.GAP
        assert sequences.place(T, 6, BEGUN, 3, 2) is Order.NEXT
        assert sequences.place(T, 6, BEGUN, 5, 1) is Order.NEXT
    # What this broker refused in an earlier transaction does not matter.
    sequences = Sequences()
    sequences.refuse(T, None, 3, BEGUN - 1)
    assert sequences.place(T, 6, BEGUN, 9, 1) is Order.NEXT


def test_any_sequence_may_follow_a_batch_that_failed_for_good():
    for next_sequence in (3, 5):
        sequences = Sequences()
        assert sequences.place(T, 6, BEGUN, 3, 2) is Order.NEXT
        sequences.forget(T)
        assert sequences.place(T, 6, BEGUN + 1, next_sequence, 1) is Order.NEXT
        assert sequences.place(T, 6, BEGUN + 1, next_sequence, 1) is Order.REPEATED


def test_sequences_begin_again_at_the_end():
    sequences = Sequences()
    last = SEQUENCE_END - 1
    assert sequences.place(T, 4, BEGUN, last, 2) is Order.NEXT
    assert sequences.place(T, 4, BEGUN, last, 2) is Order.REPEATED
    assert sequences.place(T, 4, BEGUN, 1, 1) is Order.NEXT
