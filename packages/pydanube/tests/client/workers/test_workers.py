"""Workers with a broker in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import pytest

import pydanube
from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.workers.workers import TURN_S
from support.drivers.running import TOPIC, published


@dataclass
class Order:
    number: int

    def __post_init__(self):
        if self.number < 0:
            raise ArithmeticError("negative")


@pytest.fixture
async def orders(client):
    """A topic of orders, with a failure policy that retries at once."""
    await client.topics.create(TOPIC)
    policy = pydanube.FailurePolicy(redelivery_delay_s=0.0, redeliveries_max=10)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)


OPTIONS = {"subscription": "s", "start": "earliest"}


class Calls:
    """What a worker was called with, and a wait for a number of calls."""

    def __init__(self):
        self.all = []
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, call):
        self.all.append(call)
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def first(self, count):
        while len(self.all) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.all[:count]


@pytest.fixture
async def calls():
    return Calls()


async def backlog(client):
    return (await client.subscriptions.describe(TOPIC, "s")).backlog


async def test_a_function_gets_values_and_its_return_acknowledges(
    client, calls, orders
):
    async with client.producer(TOPIC, schema=Order) as producer:
        for number in range(5):
            await producer.send(Order(number))

    @client.worker(TOPIC, concurrency=2, **OPTIONS)
    async def bill(
        order: Order, message: pydanube.Message[Order], mine: pydanube.Client
    ):
        assert mine is client
        assert message.value == order
        calls.add((message.offset, order))

    async with client.running_workers():
        await calls.first(5)
    assert sorted(calls.all) == [(n, Order(n)) for n in range(5)]
    assert await backlog(client) == 0


async def test_a_function_without_async_runs_in_threads(client, calls, orders):
    await published(client, b"0", b"1", b"2")
    both = threading.Barrier(2)

    @client.worker(TOPIC, concurrency=2, **OPTIONS)
    def work(message):
        if message.offset < 2:
            both.wait()
        calls.add(threading.get_ident())

    async with client.running_workers():
        idents = await calls.first(3)
    assert threading.get_ident() not in idents
    assert await backlog(client) == 0


async def test_calls_do_not_see_context_variables_of_earlier_calls(
    client, calls, orders
):
    variable = ContextVar("variable", default="unset")
    await published(client, *[b"message"] * 5)

    @client.worker(TOPIC, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(variable.get())
        variable.set(f"message {message.offset}")

    async with client.running_workers():
        assert await calls.first(5) == ["unset"] * 5


async def test_a_batch_is_acknowledged_together(client, calls, orders):
    await published(client, *[str(n).encode() for n in range(10)])

    @client.worker(TOPIC, batch=4, **OPTIONS)
    async def work(texts: list[str], batch: pydanube.MessageBatch):
        assert [each.payload.decode() for each in batch] == texts
        calls.add(texts)

    async with client.running_workers():
        while sum(map(len, calls.all)) < 10:
            await calls.first(len(calls.all) + 1)
    assert [text for texts in calls.all for text in texts] == [
        str(n) for n in range(10)
    ]
    assert max(map(len, calls.all)) <= 4
    assert await backlog(client) == 0


@pytest.mark.parametrize("batch", [None, 5])
async def test_a_worker_consumes_partitions_and_several_topics(client, calls, batch):
    await client.topics.create("/default/a", partitions=3)
    await client.topics.create("/default/b")
    for topic in ("/default/a", "/default/b"):
        async with client.producer(topic) as producer:
            for number in range(12):
                producer.send_nowait(f"{topic}:{number}", key=f"k{number % 5}")

    @client.worker(
        ["/default/a", "/default/?"], order="key", batch=batch, concurrency=4, **OPTIONS
    )
    async def work(messages):
        for message in messages if batch else [messages]:
            calls.add((message.topic, message.key, message.offset, message.payload))

    async with client.running_workers():
        while len(calls.all) < 24:
            await calls.first(len(calls.all) + 1)
    assert len({payload for *_, payload in calls.all}) == 24
    for topic, key in {(topic, key) for topic, key, *_ in calls.all}:
        offsets = [offset for t, k, offset, _ in calls.all if (t, k) == (topic, key)]
        assert offsets == sorted(offsets)
    for topic in (*await client.topics.partitions("/default/a"), "/default/b"):
        assert (await client.subscriptions.describe(topic, "s")).backlog == 0


async def test_a_worker_continues_when_a_connection_has_lost_all_that_waits(
    broker, client, calls, orders
):
    await published(client, *[b"message"] * 6)
    may_finish = asyncio.Event()

    @client.worker(TOPIC, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(message.offset)
        await may_finish.wait()

    async with client.running_workers() as workers:
        [running] = workers._running
        await calls.first(1)
        while running._queue.has_room:
            await client.topics.describe(TOPIC)
        broker.disconnect_all()
        while not all(run[0].is_lost for run in running._queue):
            await client.topics.describe(TOPIC)
        may_finish.set()
        while await backlog(client):
            pass
    assert {*calls.all} == {*range(6)}


async def test_a_failed_message_is_delivered_again(client, calls, orders):
    await published(client, b"0", b"1")

    @client.worker(TOPIC, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add((message.offset, message.attempt))
        if message.offset == 0 and message.attempt < 3:
            raise ValueError("not yet")

    async with client.running_workers():
        await calls.first(4)
    assert sorted(calls.all) == [(0, 1), (0, 2), (0, 3), (1, 1)]
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.backlog, facts.counts.nacked) == (0, 2)


async def test_an_undecodable_message_fails_alone(client, calls, orders):
    await client.topics.create("/default/dead")
    policy = pydanube.FailurePolicy(
        redeliveries_max=0,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    payloads = [b'{"number": 0}', b"garbage", b'{"number": -1}', b'{"number": 2}']
    await published(client, *payloads)

    @client.worker(TOPIC, batch=10, **OPTIONS)
    async def work(orders: list[Order]):
        calls.add(orders)

    async with (
        client.consumer("/default/dead", subscription="d", start="earliest") as dead,
        client.running_workers(),
    ):
        found = {(await dead.receive()).payload for _ in range(2)}
        assert found == {*payloads[1:3]}
        await calls.first(1)
    assert [order.number for each in calls.all for order in each] == [0, 2]


@pytest.mark.parametrize("batch", [None, 3])
async def test_keys_keep_their_order_also_after_failures(client, orders, batch):
    async with client.producer(TOPIC) as producer:
        for number in range(60):
            producer.send_nowait(str(number), key=f"k{number % 4}")
    done, failed, all_done = [], set(), asyncio.Event()

    @client.worker(TOPIC, order="key", concurrency=3, batch=batch, **OPTIONS)
    async def work(messages):
        messages = messages if batch else [messages]
        await asyncio.sleep(0)
        offsets = {message.offset for message in messages}
        for offset in offsets:
            if offset % 7 == 0 and offset not in failed:
                failed.update(offsets)
                raise ValueError("once")
        done.extend(message.offset for message in messages)
        if len(done) >= 60:
            all_done.set()

    async with client.running_workers():
        await all_done.wait()
    assert len(done) == 60
    for key in range(4):
        mine = [offset for offset in done if offset % 4 == key]
        assert mine == sorted(mine)
    assert await backlog(client) == 0


async def test_messages_of_a_stopped_worker_go_to_others(client, calls, orders):
    await published(client, *[str(n).encode() for n in range(20)])
    blocked = asyncio.Event()

    @client.worker(TOPIC, concurrency=2, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(message.offset)
        await blocked.wait()

    async with client.running_workers(stop_timeout_s=0):
        started = await calls.first(2)
    again = pydanube.Workers()
    second = Calls()

    @again.worker(TOPIC, **OPTIONS)
    async def finish(message: pydanube.Message):
        second.add((message.offset, message.attempt))

    async with client.running_workers(again):
        found = dict(await second.first(20))
    assert [found[offset] for offset in started] == [2, 2]
    assert sorted(found) == list(range(20))
    facts = await client.subscriptions.describe(TOPIC, "s")
    # None of them has failed.
    assert (facts.backlog, facts.counts.nacked, facts.counts.timed_out) == (0, 0, 0)


async def test_stopping_waits_for_calls_and_a_second_stop_does_not(
    client, calls, orders
):
    await published(client, b"0", b"1")
    released = asyncio.Event()

    @client.worker(TOPIC, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(message.offset)
        await released.wait()

    async with client.running_workers() as running:
        await calls.first(1)
        running.stop()
        await running.wait()
        released.set()
    assert (calls.all, await backlog(client)) == ([0], 1)
    released.clear()
    async with client.running_workers() as running:
        await calls.first(2)
        running.stop()
        running.stop()
    assert (calls.all, await backlog(client)) == ([0, 1], 1)


async def test_messages_that_run_or_wait_keep_their_time(
    client, calls, orders, monkeypatch
):
    await published(client, *[str(n).encode() for n in range(8)])
    extended, may_finish = Calls(), asyncio.Event()
    _extend_ranges = TopicConsumer._extend_ranges

    def note_and_extend(self, ranges, ack_timeout_s):
        ranges = list(ranges)
        for base, end in ranges:
            for offset in range(base, end):
                extended.add((offset, ack_timeout_s))
        _extend_ranges(self, ranges, ack_timeout_s)

    monkeypatch.setattr(TopicConsumer, "_extend_ranges", note_and_extend)

    @client.worker(TOPIC, ack_timeout_s=0.9, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(message.offset)
        await may_finish.wait()

    async with client.running_workers():
        await calls.first(1)
        while not set(range(5)) <= {offset for offset, _ in extended.all}:
            await extended.first(len(extended.all) + 1)
        may_finish.set()
    # One runs, two wait, and the others are in the consumer.
    assert {timeout_s for _, timeout_s in extended.all} == {0.9}


async def test_a_broken_connection_runs_no_message_twice_at_the_same_time(
    broker, client, calls, orders
):
    await published(client, *[str(n).encode() for n in range(8)])
    running, twice, done, may_finish = set(), [], Calls(), asyncio.Event()

    @client.worker(TOPIC, concurrency=2, **OPTIONS)
    async def work(message: pydanube.Message):
        if message.offset in running:
            twice.append(message.offset)
        running.add(message.offset)
        calls.add(message.offset)
        await may_finish.wait()
        running.discard(message.offset)
        done.add(message.offset)

    async with client.running_workers():
        await calls.first(2)
        broker.disconnect_all()
        await client.topics.describe(TOPIC)
        may_finish.set()
        while len({*done.all}) < 8:
            await done.first(len(done.all) + 1)
    assert twice == []
    assert await backlog(client) == 0


async def test_a_call_that_leaves_its_task_cancelled_does_not_hold_others_up(
    client, calls, orders
):
    await published(client, *[str(n).encode() for n in range(6)])

    async def fail():
        raise LookupError

    @client.worker(TOPIC, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add((message.offset, message.attempt))
        task = asyncio.current_task()
        match message.offset, message.attempt:
            case 0, 1:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(fail())
            case 1, 1:
                task.cancel()
                await asyncio.sleep(0)
            case 2, 1:
                # The function returns nevertheless.
                task.cancel()

    async with client.running_workers():
        await calls.first(8)
    assert sorted(calls.all) == [
        *((0, 1), (0, 2), (1, 1), (1, 2)),
        *((offset, 1) for offset in range(2, 6)),
    ]
    assert await backlog(client) == 0


async def test_calls_have_their_own_timeouts(client, calls, orders):
    await published(client, *[b"message"] * 20)

    @client.worker(TOPIC, concurrency=5, **OPTIONS)
    async def work(message: pydanube.Message):
        try:
            async with asyncio.timeout(0 if message.offset % 2 else None):
                await asyncio.sleep(0)
                calls.add(message.offset)
                await asyncio.sleep(0)
        except TimeoutError:
            calls.add(-message.offset)

    async with client.running_workers():
        while await backlog(client):
            await calls.first(len(calls.all))
    assert {offset for offset in calls.all if offset >= 0} >= {*range(0, 20, 2)}
    assert {-offset for offset in calls.all if offset < 0} == {*range(1, 20, 2)}


async def test_a_task_makes_the_calls_that_do_not_wait(client, calls, orders):
    await published(client, *[b"message"] * 100)
    tasks = set()

    @client.worker(TOPIC, concurrency=100, **OPTIONS)
    async def work(message: pydanube.Message):
        tasks.add(asyncio.current_task())
        calls.add(message.offset)

    async with client.running_workers():
        await calls.first(100)
    assert len(tasks) < 50


async def test_a_call_that_takes_a_whole_turn_has_it_alone(client, calls, orders):
    await published(client, *[b"message"] * 10)
    turns = []

    @client.worker(TOPIC, concurrency=1, **OPTIONS)
    async def work(message: pydanube.Message):
        calls.add(len(turns))
        asyncio.get_running_loop().call_soon(turns.append, message.offset)
        time.sleep(2 * TURN_S)  # noqa: ASYNC251  # The loop is held up on purpose.

    async with client.running_workers():
        assert await calls.first(10) == [*range(10)]


@pytest.mark.parametrize("order", [None, "key"])
async def test_calls_that_wait_or_fail_among_others_are_settled_alone(
    client, calls, orders, order
):
    async with client.producer(TOPIC, schema=Order) as producer:
        for number in range(40):
            await producer.send(Order(number), key=str(number % 3))
    done = Calls()
    variable = ContextVar("variable", default=0)
    errors = dict.fromkeys((5, 38), LookupError)
    errors |= {16: RecursionError, 27: asyncio.CancelledError}

    @client.worker(TOPIC, concurrency=3, order=order, **OPTIONS)
    async def work(order: Order, message: pydanube.Message[Order]):
        calls.add((order.number, message.attempt))
        assert (order.number, variable.get()) == (message.offset, 0)
        variable.set(1)
        if order.number % 7 == 3:
            await asyncio.sleep(0)
        if order.number % 11 == 5 and message.attempt == 1:
            raise errors[order.number]("the first time")
        if order.number % 13 == 1:
            message.ack()
        done.add(order.number)

    async with client.running_workers():
        await done.first(40)
    # With the order of keys, messages behind a failed one may be released meanwhile.
    assert sorted({*done.all}) == [*range(40)]
    assert len(done.all) == 40
    failed = {number for number, attempt in calls.all if attempt > 1}
    assert failed >= {5, 16, 27, 38}
    if order == "key":
        for key in range(3):
            numbers = [number for number in done.all if number % 3 == key]
            assert numbers == sorted(numbers)
    assert await backlog(client) == 0


async def test_values_of_messages_without_a_schema_fail_alone(client, calls, orders):
    await published(client, b"0", b"1", b"2", b"3")
    policy = pydanube.FailurePolicy(
        redeliveries_max=0, poison=pydanube.PoisonPolicy.DROP
    )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    async with client.producer(TOPIC, schema=Order) as producer:
        await producer.send(Order(4))

    @client.worker(TOPIC, **OPTIONS)
    async def work(order: Order):
        calls.add(order.number)

    async with client.running_workers():
        assert await calls.first(1) == [4]
    assert await backlog(client) == 0


async def test_functions_without_async_run_as_many_at_a_time_as_set(
    client, calls, orders
):
    await published(client, *[b"message"] * 40)
    may_end = threading.Semaphore(0)
    running, most = [], []

    @client.worker(TOPIC, concurrency=3, **OPTIONS)
    def work(message: pydanube.Message):
        running.append(message.offset)
        most.append(len(running))
        calls.add(message.offset)
        may_end.acquire()
        running.remove(message.offset)

    async with client.running_workers() as workers:
        await calls.first(3)
        may_end.release(10)
        started = len(await calls.first(13))
        workers.stop()
        await workers.wait()
        may_end.release(3)
    assert max(most) == 3
    # Those that waited for a thread are given back.
    assert len(calls.all) == started
    assert await backlog(client) == 40 - started


async def test_workers_fail_with_their_consumer(client, orders):
    @client.worker(TOPIC, name="w", **OPTIONS)
    async def work(message):
        pass

    workers = client.running_workers()
    running = await workers.__aenter__()
    # Unlike a consumer of the same name, this lasts if the connection breaks.
    await client.topics.delete(TOPIC, force=True)
    await running.wait()
    with pytest.raises(pydanube.TopicNotFound):
        await workers.__aexit__(None, None, None)
    assert isinstance(running.failure, pydanube.TopicNotFound)


def test_mistakes_are_explained():
    workers = pydanube.Workers()

    async def fine(order: Order): ...
    async def none(): ...
    async def two(order: Order, other: Order): ...
    async def not_a_list(orders: Order): ...
    async def only(*, order: Order): ...

    worker = partial(workers.worker, TOPIC, subscription="s")
    for options, function, message in [
        ({"order": "topic"}, fine, "must be 'key'"),
        ({"concurrency": 0}, fine, "concurrency is 0"),
        ({"concurrency": "many"}, fine, "a whole number"),
        ({"batch": 0}, fine, "batch is 0"),
        ({}, none, "needs one parameter"),
        ({}, two, "needs one parameter"),
        ({"batch": 2}, not_a_list, "list"),
        ({"batch": 2}, takes_a_message, "MessageBatch"),
        ({}, only, "keyword-only"),
    ]:
        with pytest.raises(pydanube.InvalidRequest, match=message):
            worker(**options)(function)
    with pytest.raises(TypeError, match="no option 'speed'"):
        worker(speed=1)
    assert len(workers) == 0


async def takes_a_message(message: pydanube.Message): ...


async def test_running_nothing_is_refused(client):
    with pytest.raises(pydanube.InvalidRequest, match="no workers"):
        await client.run_workers()


async def test_broker_sends_a_fast_worker_many_messages_at_a_time(
    client, orders, calls
):
    workers = pydanube.Workers()

    @workers.worker(TOPIC, **OPTIONS)
    async def work(message: bytes):
        calls.add(message)

    async with client.running_workers(workers) as running:
        [worker] = running._running
        credit = worker._consumer.credit
        assert credit.maximum[0] == 2
        sent = 0
        while credit.maximum[0] == 2:
            await published(client, *[b"x"] * 100)
            sent += 100
            await calls.first(sent)
        await published(client, *[b"x"] * 100)
        await calls.first(sent + 100)
