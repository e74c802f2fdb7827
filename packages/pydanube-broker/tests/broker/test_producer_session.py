from collections import deque

import pytest

from pydanube.model.errors import OutOfSequence, ProducerFenced
from pydanube.wire.batches import BatchHeader
from pydanube.wire.files.journal_format import RUNS_MAX
from pydanube_broker.broker.pure.producer_session import ProducerSession, open_session


def header(base_sequence, count, *, producer_id=7, epoch=1):
    return BatchHeader(
        count=count,
        columns=4,
        base_sequence=base_sequence,
        producer_id=producer_id,
        producer_epoch=epoch,
        first_publish_time=0,
        last_publish_time=0,
    )


def session(next_sequence=0, runs=(), epoch=1):
    return ProducerSession("web-1", 7, epoch, next_sequence, deque(runs, RUNS_MAX))


def test_batch_that_continues_the_sequence_is_stored():
    assert session(next_sequence=10).admit(header(10, 3)) is None


def test_batch_that_was_stored_is_recognised_with_its_offset():
    producer = session()
    producer.record(0, 100, 5)
    producer.record(5, 200, 5)

    assert producer.admit(header(0, 5)) == 100
    assert producer.admit(header(5, 5)) == 200
    assert producer.admit(header(10, 1)) is None


def test_part_of_a_run_is_recognised():
    producer = session()
    producer.record(0, 100, 5)
    producer.record(5, 105, 5)

    assert list(producer.runs) == [(0, 100, 10)]
    assert producer.admit(header(3, 4)) == 103


@pytest.mark.parametrize(("base", "count"), [(11, 1), (8, 5), (0, 2)])
def test_gaps_overlaps_and_forgotten_sequences_are_refused(base, count):
    producer = session(next_sequence=10, runs=[(5, 50, 5)])

    with pytest.raises(OutOfSequence, match="10 was expected"):
        producer.admit(header(base, count))


def test_batch_of_another_epoch_or_producer_is_refused():
    with pytest.raises(ProducerFenced):
        session().admit(header(0, 1, epoch=2))
    with pytest.raises(ProducerFenced):
        session().admit(header(0, 1, producer_id=8))


def test_runs_are_bounded():
    producer = session()
    for n in range(RUNS_MAX + 10):
        producer.record(n, n * 10, 1)

    assert len(producer.runs) == RUNS_MAX
    assert producer.runs[0] == (10, 100, 1)


def test_new_name_begins_with_epoch_1():
    opened = open_session("web-1", None, resume=(0, 0), new_id=3)

    assert (opened.producer_id, opened.epoch, opened.next_sequence) == (3, 1, 0)


def test_resume_with_id_and_epoch_continues_the_session():
    before = session(next_sequence=10, runs=[(0, 0, 10)])

    opened = open_session("web-1", before, resume=(7, 1), new_id=9)

    assert (opened.producer_id, opened.epoch, opened.next_sequence) == (7, 1, 10)
    assert opened.runs == deque([(0, 0, 10)])


def test_other_session_fences_it_and_continues_its_sequence():
    before = session(next_sequence=10, runs=[(0, 0, 10)])

    opened = open_session("web-1", before, resume=(0, 0), new_id=9)

    assert (opened.producer_id, opened.epoch, opened.next_sequence) == (7, 2, 10)
    assert opened.runs == deque([(0, 0, 10)])


@pytest.mark.parametrize("resume", [(7, 1), (6, 2)])
def test_older_session_does_not_return_after_a_newer_one(resume):
    before = session(epoch=2)

    with pytest.raises(ProducerFenced):
        open_session("web-1", before, resume=resume, new_id=9)
