"""Key-shared subscriptions; see also the model ``key_shared_model``."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import FailurePolicy
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Deliver
from pydanube_broker.dispatch.key_shared.machine import KeySharedSubscription
from pydanube_broker.dispatch.message_spans import BatchKeys, DeliveryWindow

PLENTY = 1 << 40
PATIENT = FailurePolicy(ack_timeout_s=None)


def machine_of(consumers, *, credit=PLENTY, **options):
    machine = KeySharedSubscription(Cursor(0), **{"failure_policy": PATIENT, **options})
    for consumer in range(consumers):
        machine.on_consumer_joined(consumer, 0.0)
        machine.on_credit(consumer, credit, PLENTY, 0.0)
    return machine


def bring(machine, keys, *, windows=(), now=0.0):
    """Make a batch with *keys* available; return its deliveries."""
    unique = list(dict.fromkeys(keys))
    codes = {key: code for code, key in enumerate(unique)}
    base = machine.next_offset
    return machine.on_available(
        base,
        base + len(keys),
        100 * len(keys),
        now,
        windows,
        keys=BatchKeys(unique, [codes[key] for key in keys]),
    )


def ranges_of(delivery):
    return tuple(delivery.ranges())


def ack_all(machine, effects):
    """Acknowledge the deliveries in *effects*, and those that follow."""
    while deliveries := [each for each in effects if isinstance(each, Deliver)]:
        effects = []
        for each in deliveries:
            effects += machine.on_ack(ranges_of(each), 0.0)


@pytest.mark.parametrize("skipped", [0, 3, 4095])
def test_a_bit_map_acknowledges_as_ranges_do(skipped):
    machine = machine_of(2)
    keys = random_keys(10_000)
    bring(machine, keys)
    bits = random.Random(skipped).getrandbits(5900)
    before = machine.in_flight.count
    machine.on_ack_bits(skipped, bits, 0.0)
    done = [skipped + at for at in range(5900) if bits >> at & 1]
    assert before - machine.in_flight.count == len(done)
    assert machine.cursor.backlog(10_000) == 10_000 - len(done)
    assert not any(machine.cursor.open_count(at, at + 1) for at in done)
    machine.on_ack_bits(skipped, bits, 0.0)
    assert before - machine.in_flight.count == len(done)
    machine.on_ack_bits(0, (1 << 10_000) - 1, 0.0)
    assert machine.cursor.offset == 10_000


def random_keys(count, *, of=1000, seed=4711):
    rng = random.Random(seed)
    return [b"key-%d" % rng.randrange(of) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 1000, 10_000])
@pytest.mark.parametrize("consumers", [1, 4])
def test_each_consumer_receives_a_batch_in_one_delivery(count, consumers):
    machine = machine_of(consumers)
    keys = random_keys(count)
    effects = bring(machine, keys)
    assert len(effects) == len({each.consumer for each in effects}) <= consumers
    owner_of = {}
    delivered = []
    for each in effects:
        for base, end in ranges_of(each):
            for offset in range(base, end):
                assert owner_of.setdefault(keys[offset], each.consumer) == each.consumer
                delivered.append(offset)
    assert sorted(delivered) == list(range(count))
    assert sum(each.byte_count for each in effects) == 100 * count
    ack_all(machine, effects)
    assert machine.cursor.offset == count


def test_hundreds_of_consumers_share_a_batch():
    machine = machine_of(280)
    effects = bring(machine, random_keys(3000, of=100_000))
    assert len({each.consumer for each in effects}) > 260
    ack_all(machine, effects)
    assert machine.cursor.offset == 3000


def test_order_per_key_holds_while_consumers_join_and_leave():
    rng = random.Random(4711)
    machine = machine_of(3)
    consumers, ever = [0, 1, 2], 3
    keys, seen, waiting = [], {}, []

    def note(effects):
        for each in effects:
            if isinstance(each, Deliver):
                for base, end in ranges_of(each):
                    for offset in range(base, end):
                        order = seen.setdefault(keys[offset], [])
                        assert each.attempt > 1 or not order or order[-1] < offset
                        order.append(offset)
                waiting.append(each)

    for _ in range(300):
        act = rng.random()
        if act < 0.5:
            batch = random_keys(50, of=40, seed=rng.random())
            keys += batch
            note(bring(machine, batch))
        elif act < 0.9 and waiting:
            done = waiting.pop(rng.randrange(len(waiting)))
            note(machine.on_ack(ranges_of(done), 0.0))
        elif act < 0.95 and len(consumers) > 1:
            gone = consumers.pop(rng.randrange(len(consumers)))
            waiting = [each for each in waiting if each.consumer != gone]
            note(machine.on_consumer_left(gone, 0.0))
        else:
            consumers.append(ever)
            machine.on_consumer_joined(ever, 0.0)
            note(machine.on_credit(ever, PLENTY, PLENTY, 0.0))
            ever += 1
    while waiting:
        note(machine.on_ack(ranges_of(waiting.pop()), 0.0))
    assert machine.cursor.offset == len(keys)
    assert machine.ready_count == machine.in_flight.count == 0


def test_demand_is_zero_while_too_many_messages_wait():
    machine = machine_of(2)
    machine.waiting_messages_max = 200
    machine.on_consumer_joined(9, 0.0)
    brought = 0
    while machine.demand():
        ack_all(machine, bring(machine, random_keys(50, seed=brought)))
        brought += 50
    assert 200 <= machine.ready_count < 250
    ack_all(machine, machine.on_credit(9, 100, PLENTY, 0.0))
    assert machine.demand() > 0


def test_machine_awaits_credit_of_a_consumer_that_has_less_than_its_share():
    machine = machine_of(2, credit=1000)
    assert not machine.awaits_credit(2000)
    bring(machine, [b"key"] * 600)
    assert machine.awaits_credit(1000)
    assert not machine.awaits_credit(800)
    # Nobody has given credit for so many before.
    assert not machine.awaits_credit(4000)
    # Limits decide, or nothing is delivered.
    machine.set_paused(True, 0.0)
    assert not machine.awaits_credit(1000)
    machine.set_paused(False, 0.0)
    assert machine.awaits_credit(1000)
    # The wait was in vain; more credit may come again.
    machine.stop_awaiting_credit()
    assert not machine.awaits_credit(1000)
    for consumer in range(2):
        machine.on_credit(consumer, 600, PLENTY, 0.0)
    assert not machine.awaits_credit(1000)
    bring(machine, [b"key"] * 700)
    assert machine.awaits_credit(1000)


def test_messages_that_no_consumer_accepts_are_backlog():
    machine = machine_of(0)
    machine.waiting_messages_max = 10
    machine.on_consumer_joined(0, 0.0, key_filters=["a*"])
    machine.on_credit(0, 100, PLENTY, 0.0)
    ack_all(machine, bring(machine, [b"b", b"a1", b"b"]))
    assert machine.cursor.backlog(3) == machine.ready_count == 2
    assert machine.demand() == 99
    bring(machine, [b"b"] * 8)
    assert machine.demand() == 0
    machine.on_consumer_joined(1, 0.0)
    (delivery, rest) = machine.on_credit(1, 100, PLENTY, 0.0)
    assert ranges_of(delivery) == ((0, 1), (2, 3))
    assert ranges_of(rest) == ((3, 11),)


def test_invalid_filters_change_nothing():
    machine = machine_of(1)
    with pytest.raises(InvalidRequest):
        machine.on_consumer_joined(1, 0.0, key_filters=["a", ""])
    assert list(machine.consumers) == [0]
    effects = bring(machine, random_keys(100))
    assert {each.consumer for each in effects} == {0}


def test_replaced_consumer_receives_its_messages_again_and_keeps_its_keys():
    machine = machine_of(2)
    keys = random_keys(200)
    before = {each.consumer: ranges_of(each) for each in bring(machine, keys)}
    assert machine.on_consumer_replaced(0, 0.0) == []
    assert machine.consumers[0].unacked == 0
    (again,) = machine.on_credit(0, PLENTY, PLENTY, 0.0)
    assert (again.consumer, again.attempt) == (0, 2)
    assert ranges_of(again) == before[0]


def test_key_moves_when_its_former_owner_is_replaced():
    machine = machine_of(1)
    keys = random_keys(100)
    bring(machine, keys)
    machine.on_consumer_joined(1, 0.0)
    machine.on_credit(1, PLENTY, PLENTY, 0.0)
    # The new consumer owns half of the keys, but they are in flight with the other.
    bring(machine, keys)
    assert machine.ready_count > 30
    again = machine.on_consumer_replaced(0, 0.0)
    again += machine.on_credit(0, PLENTY, PLENTY, 0.0)
    assert machine.ready_count == 0
    assert {each.consumer for each in again} == {0, 1}
    ack_all(machine, again)


def test_messages_done_while_waiting_make_room():
    machine = machine_of(2)
    machine.set_rate(10.0, 0.0)
    bring(machine, random_keys(30))
    assert machine.in_flight.count == 10
    assert machine.demand() == 0
    machine.on_ack([(0, 27)], 0.0)
    assert machine.ready_count <= 3
    assert machine.demand() == 10 - machine.ready_count


def test_consumer_that_joins_while_all_is_done_owns_keys_at_once():
    machine = machine_of(1)
    ack_all(machine, bring(machine, random_keys(100)))
    machine.on_consumer_joined(1, 0.0)
    machine.on_credit(1, PLENTY, PLENTY, 0.0)
    assert {each.consumer for each in bring(machine, random_keys(100))} == {0, 1}


def test_messages_with_different_expiry_times_are_one_delivery():
    machine = machine_of(2)
    keys = random_keys(100)
    windows = [DeliveryWindow(at, at + 1, expires=10.0 + at) for at in range(0, 100, 2)]
    effects = bring(machine, keys, windows=windows)
    assert len(effects) == 2
    machine.on_consumer_left(0, 20.0)
    # Messages that have expired by then are not delivered again.
    assert machine.in_flight.count == 100 - len(
        [r for each in effects if each.consumer == 0 for r in expired(each, 10)]
    )


def test_expiring_messages_keep_their_keys_if_their_consumer_leaves():
    machine = machine_of(2)
    key_of = {}
    for key in random_keys(20):
        [delivery] = bring(machine, [key])
        key_of[delivery.consumer] = key
    ack_all(machine, [Deliver(0, 0, 20, 1, 0)])
    windows = [DeliveryWindow(20, 52, expires=10.0)]
    bring(machine, [key_of[0]] * 30 + [key_of[1]] * 2, windows=windows)
    again = machine.on_consumer_left(0, 1.0)
    found = [(each.consumer, r) for each in again for r in ranges_of(each)]
    assert found == [(1, (20, 50))]


def expired(delivery, below):
    return [
        offset
        for base, end in ranges_of(delivery)
        for offset in range(base, end)
        if offset <= below and offset % 2 == 0
    ]


@pytest.mark.slow
def test_done_messages_take_no_memory():
    machine = machine_of(4, failure_policy=FailurePolicy())

    def live(seed):
        for number in range(50):
            keys = random_keys(200, of=10**9, seed=f"{seed} {number}")
            effects = bring(machine, keys, now=float(number))
            if number % 5 == 0:
                effects += machine.on_nack([(machine.next_offset - 100, PLENTY)], 0.0)
            ack_all(machine, effects)
        machine.on_time(10_000.0)
        ack_all(machine, machine.on_ack([(0, machine.next_offset)], 0.0))

    live(0)
    tracemalloc.start()
    try:
        live(1)
        before = tracemalloc.get_traced_memory()[0]
        for seed in range(2, 4):
            live(seed)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert machine.cursor.offset == machine.next_offset
    # The cache of key owners has its own bound.
    assert grown < 6_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("size", "bytes_each_max"), [(1, 1500), (1000, 150)])
def test_waiting_message_takes_little_memory(size, bytes_each_max):
    machine = machine_of(4, credit=1)
    keys = random_keys(5000)
    tracemalloc.start()
    try:
        for at in range(0, len(keys), size):
            bring(machine, keys[at : at + size])
        bytes_each = tracemalloc.get_traced_memory()[0] / len(keys)
    finally:
        tracemalloc.stop()
    assert machine.ready_count >= len(keys) - 4
    assert bytes_each < bytes_each_max


@pytest.mark.slow
def test_last_message_of_a_batch_does_not_keep_all_its_keys():
    machine = machine_of(1)
    tracemalloc.start()
    try:
        for number in range(20):
            keys = random_keys(1000, of=10**9, seed=number)
            bring(machine, keys)
            base = machine.next_offset - 1000
            machine.on_ack([(base, base + 500), (base + 501, base + 1000)], 0.0)
        bytes_each = tracemalloc.get_traced_memory()[0] / 20
    finally:
        tracemalloc.stop()
    assert machine.in_flight.count == 20
    assert bytes_each < 20_000
