"""A transactional producer is fenced by the next, and its records come in order."""

from __future__ import annotations

from pydanube.model.names import TopicName
from pydanube_kafka.pure.transactions import (
    SEQUENCE_END,
    Order,
    TransactionalProducer,
    TransactionError,
)

T = TopicName.parse("/default/t")


def new_producer():
    return TransactionalProducer("q", 7, 1, 10.0, 100)


def test_requests_with_another_id_or_epoch_are_fenced():
    producer = new_producer()
    assert producer.check(7, 1) is None
    for claim in ((8, 1), (7, 0), (7, 2)):
        assert producer.check(*claim) is TransactionError.FENCED


def test_a_producer_whose_answer_was_lost_may_name_the_epoch_before():
    producer = new_producer()
    assert producer.may_continue(7, 1)
    assert producer.may_continue(7, 0)
    assert not producer.may_continue(8, 1)
    producer.begin(100, 0.0)
    assert producer.may_continue(7, 1)
    assert not producer.may_continue(7, 0)
    producer.end(is_committed=True)
    assert not producer.may_continue(7, 0)


def test_requests_within_a_transaction_need_one_that_is_open():
    producer = new_producer()
    assert producer.check_open(7, 1) is TransactionError.NOT_OPEN
    producer.begin(100, 0.0)
    assert producer.check_open(7, 1) is None
    producer.is_ending = True
    assert producer.check_open(7, 1) is TransactionError.BUSY
    producer.end(is_committed=True)
    assert producer.check_open(7, 1) is TransactionError.NOT_OPEN
    assert (producer.version, producer.was_committed) == (None, True)


def test_a_transaction_is_late_when_its_time_is_over():
    producer = new_producer()
    assert not producer.is_late(1000.0)
    producer.begin(100, 5.0)
    assert not producer.is_late(14.9)
    assert producer.is_late(15.0)
    producer.is_ending = True
    assert not producer.is_late(1000.0)


def test_batches_are_taken_in_order_and_once_over_transactions():
    producer = new_producer()
    producer.begin(100, 0.0)
    assert producer.place(T, 0, 3) is Order.NEXT
    assert producer.place(T, 0, 3) is Order.REPEATED
    assert producer.place(T, 5, 1) is Order.GAP
    producer.end(is_committed=True)
    producer.begin(101, 0.0)
    assert producer.place(T, 3, 2) is Order.NEXT
    assert (producer.batch_count, producer.message_count) == (1, 2)


def test_sequences_begin_again_at_the_end():
    producer = new_producer()
    producer.sequences[T] = SEQUENCE_END - 1
    assert producer.place(T, SEQUENCE_END - 1, 2) is Order.NEXT
    assert producer.place(T, SEQUENCE_END - 1, 2) is Order.REPEATED
    assert producer.place(T, 1, 1) is Order.NEXT
