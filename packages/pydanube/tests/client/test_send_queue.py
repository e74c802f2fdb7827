"""The queue of a producer's unacknowledged messages, without an event loop."""

from concurrent.futures import Future

import pyarrow as pa
import pytest

from pydanube.client.pure.batching import batches_of
from pydanube.client.pure.send_queue import (
    DELIVERY_TIMEOUT_S,
    INFLIGHT_BATCHES_MAX,
    PENDING_BYTES_MAX,
    OpenBatch,
    SendQueue,
)
from pydanube.model.batch import Column
from pydanube.model.errors import Closed, InvalidRequest, TimedOut
from pydanube.wire.batches import Codec


class Broker:
    """Collects the frames that a queue sends."""

    def __init__(self, codec=Codec.NONE):
        self.now = 0.0
        self.frames = []
        self.queue = SendQueue("p", codec, (0, 0), lambda: self.now)
        self.queue.set_batch_bytes_max(8_000_000)

    def open(self, next_sequence=0, epoch=1):
        self.frames.clear()
        self.queue.resume(1, epoch, next_sequence, self.frames.append)

    def send(self, *payloads):
        """Send *payloads* as one small batch."""
        future = Future()
        self.queue.send_small(list(payloads), 0, future)
        return future

    def gather(self, *payloads, byte_count=1):
        """Add *payloads* to a new open batch."""
        batch = self.queue.open = OpenBatch("/default/t", Future())
        batch.set_time(0)
        for payload in payloads:
            batch.payloads.append(payload)
            batch.byte_count += byte_count
        return batch.completion

    @property
    def sequences(self):
        return [frame.header.base_sequence for frame in self.frames]


@pytest.fixture
def broker():
    broker = Broker()
    broker.open()
    return broker


def test_batches_are_numbered_and_completed_in_their_order(broker):
    first, second = broker.send(b"0", b"1"), broker.send(b"2")
    assert broker.sequences == [0, 2]
    assert broker.queue.message_count == 3
    broker.queue.acknowledge(2, 102)
    assert (first.result(), second.result()) == (100, 102)
    assert broker.queue.is_idle
    assert broker.queue.pending_bytes == 0


def test_acknowledgement_completes_only_earlier_batches(broker):
    first, second = broker.send(b"0"), broker.send(b"1")
    broker.queue.acknowledge(0, 7)
    assert first.result() == 7
    assert not second.done()


def test_batches_beyond_the_window_wait(broker):
    for _ in range(INFLIGHT_BATCHES_MAX):
        broker.send(b"m")
    waiting = broker.gather(b"late")
    broker.queue.close_open()
    assert not broker.queue.can_send
    assert len(broker.frames) == INFLIGHT_BATCHES_MAX
    assert broker.queue.last_completion is waiting
    broker.queue.acknowledge(0, 0)
    broker.queue.send_waiting()
    assert broker.sequences[-1] == INFLIGHT_BATCHES_MAX
    assert not broker.queue.can_send
    broker.queue.acknowledge(INFLIGHT_BATCHES_MAX, INFLIGHT_BATCHES_MAX)
    assert waiting.result() == INFLIGHT_BATCHES_MAX


def test_open_batch_is_sent_when_nothing_is_in_flight(broker):
    broker.send(b"0")
    broker.gather(b"1")
    broker.queue.send_waiting()
    assert broker.sequences == [0]
    broker.queue.acknowledge(0, 0)
    broker.queue.send_waiting()
    assert broker.sequences == [0, 1]


@pytest.mark.parametrize("extras", [None, (b"k", None, None)])
@pytest.mark.parametrize("count", [1, 200])
def test_gathered_messages_have_the_time_that_was_set_before_them(
    broker, extras, count
):
    batch = broker.queue.open = OpenBatch("/default/t", Future())
    for time in (7, 9):
        batch.set_time(time)
        for _ in range(count):
            if extras is not None:
                batch.add_extras(extras)
            batch.payloads.append(b"m")
    broker.queue.close_open()
    [frame] = broker.frames
    times = frame.arrow().column("publish_time").cast(pa.int64()).to_pylist()
    assert times == [7] * count + [9] * count
    header = frame.header
    assert (header.first_publish_time, header.last_publish_time) == (7, 9)


def test_gathered_messages_of_one_time_need_no_column_of_times(broker):
    broker.gather(b"0", b"1")
    broker.queue.close_open()
    [frame] = broker.frames
    assert frame.header.columns == Column.PAYLOAD


def test_open_batch_waits_for_senders_that_were_just_acknowledged(broker):
    broker.queue.senders = 3
    broker.send(b"0", b"1")
    broker.gather(b"2")
    broker.queue.acknowledge(0, 0)
    broker.queue.send_waiting()
    assert broker.sequences == [0]
    broker.queue.senders = 1
    broker.queue.send_waiting()
    assert broker.sequences == [0, 2]


def test_open_batch_gathers_while_there_is_no_channel():
    broker = Broker()
    broker.gather(b"0")
    broker.queue.send_waiting()
    assert broker.queue.open is not None
    broker.open()
    assert broker.sequences == [0]


def test_capacity_ends_with_the_bytes_that_wait():
    broker = Broker()
    for _ in range(INFLIGHT_BATCHES_MAX):
        broker.send(b"m")
    broker.gather(b"0", byte_count=PENDING_BYTES_MAX)
    assert broker.queue.has_capacity
    broker.queue.close_open()
    assert not broker.queue.has_capacity


def test_unacknowledged_batches_are_sent_again_with_their_sequences(broker):
    for number in range(3):
        broker.send(b"%d" % number)
    broker.queue.acknowledge(0, 0)
    broker.queue.publish = None
    broker.open(next_sequence=2)
    assert broker.sequences == [1, 2]
    broker.send(b"3")
    assert broker.sequences == [1, 2, 3]


@pytest.mark.parametrize(
    ("next_sequence", "epoch"), [(0, 1), (0, 2), (5, 2)], ids=["gap", "new", "later"]
)
def test_batches_are_renumbered_for_a_broker_that_does_not_know_them(
    broker, next_sequence, epoch
):
    broker.send(b"0")
    broker.queue.acknowledge(0, 0)
    broker.send(b"1", b"2")
    broker.send(b"3")
    broker.open(next_sequence, epoch)
    assert broker.sequences == [next_sequence, next_sequence + 2]
    assert {frame.header.producer_epoch for frame in broker.frames} == {epoch}
    assert broker.queue.identity == (1, epoch)


def test_idle_queue_continues_with_the_sequence_of_the_broker(broker):
    broker.open(next_sequence=9)
    broker.send(b"m")
    assert broker.sequences == [9]


def test_first_batch_may_fail_alone(broker):
    first, second = broker.send(b"0"), broker.send(b"1")
    broker.queue.fail_first(InvalidRequest("no"))
    with pytest.raises(InvalidRequest):
        first.result()
    assert not second.done()
    assert broker.queue.message_count == 1


def test_batches_in_flight_have_a_deadline_and_waiting_ones_have_none(broker):
    broker.now = 5.0
    futures = [broker.send(b"m") for _ in range(INFLIGHT_BATCHES_MAX)]
    waiting = broker.gather(b"late")
    broker.queue.close_open()
    assert broker.queue.inflight[0].deadline == 5.0 + DELIVERY_TIMEOUT_S
    broker.queue.fail_inflight(TimedOut("late"))
    assert all(isinstance(each.exception(), TimedOut) for each in futures)
    assert not waiting.done()


def test_failure_completes_all_batches(broker):
    futures = [broker.send(b"m") for _ in range(INFLIGHT_BATCHES_MAX)]
    futures.append(broker.gather(b"1"))
    broker.queue.close_open()
    futures.append(broker.gather(b"2"))
    broker.queue.fail_all(Closed("the end"))
    assert all(isinstance(each.exception(), Closed) for each in futures)
    assert broker.queue.is_idle
    assert broker.queue.pending_bytes == 0
    assert broker.queue.publish is None


def test_cancelled_waiters_do_not_disturb_receipts_or_errors(broker):
    first, second = broker.send(b"0"), broker.send(b"1")
    assert first.cancel()
    assert second.cancel()
    broker.queue.acknowledge(0, 0)
    broker.queue.fail_all(Closed("the end"))
    assert broker.queue.is_idle


def test_gathered_batch_that_cannot_be_encoded_fails_alone(broker):
    refused = broker.gather(b"0")
    broker.queue.open.add_extras((b"k", {"name": 5}, None))
    broker.queue.close_open()
    assert isinstance(refused.exception(), InvalidRequest)
    assert broker.queue.is_idle


def test_batch_has_the_schema_that_it_is_sent_with():
    broker = Broker(Codec.LZ4)
    broker.open()
    [batch] = batches_of([b"0", b"1"], None)
    future = Future()
    broker.queue.send_batch(batch, (1, 2), future, (3, 4))
    [frame] = broker.frames
    header = frame.header
    assert (header.schema_id, header.schema_version, header.count) == (3, 4, 2)
    assert (header.first_publish_time, header.last_publish_time) == (1, 2)
