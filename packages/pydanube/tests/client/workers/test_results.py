"""Workers publish what their functions return, before they acknowledge messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

import pydanube
from pydanube.client.workers.handlers import RESULTS_MAX
from pydanube.security.permissions import Permission
from support.drivers.running import TOPIC, published
from support.fakes.guarded_clusters import eventually, running

RESULTS = "/default/results"
DEAD_LETTERS = "/default/dead"
OPTIONS = {"subscription": "s", "start": "earliest"}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Order:
    number: int


@dataclass
class Invoice:
    number: int
    total: float = 1.5


@pytest.fixture
async def orders(client):
    """Three topics, and a failure policy that retries at once."""
    for topic in (TOPIC, RESULTS, DEAD_LETTERS):
        await client.topics.create(topic)
    policy = pydanube.FailurePolicy(
        redelivery_delay_s=0.0,
        redeliveries_max=2,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD_LETTERS,
    )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)


@pytest.fixture(params=[False, True], ids=["at_least_once", "exactly_once"])
async def worker(request, client):
    """Return the decorator of a worker that publishes."""
    return partial(
        client.worker, TOPIC, publish=RESULTS, exactly_once=request.param, **OPTIONS
    )


async def send_orders(client, *numbers, **options):
    async with client.producer(TOPIC, schema=Order) as producer:
        for number in numbers:
            await producer.send(Order(number), **options)


async def results(client, count, topic=RESULTS, schema=None):
    """Return the first *count* results that differ, when they have come."""
    found = {}
    async for batch in client.read(topic, follow=True, schema=schema):
        for message in batch:
            found.setdefault(message.payload, message)
        if len(found) >= count:
            break
    return list(found.values())


def count_of(found, worker):
    """Return how many results were published, each once unless it may be twice."""
    payloads = [each.payload for each in found]
    return len(payloads) if worker.keywords["exactly_once"] else len({*payloads})


async def until_processed(client):
    while (await client.subscriptions.describe(TOPIC, "s")).backlog:
        pass


async def all_of(client, topic=RESULTS):
    return [m async for found in client.read(topic) for m in found]


async def test_a_result_has_the_class_the_key_and_the_trace_of_its_message(
    client, orders, worker
):
    sent = {"traceparent": TRACEPARENT, "x-correlation-id": "7", "mine": "no"}
    await send_orders(client, 1, 2, key="user-1", attributes=sent)

    @worker()
    async def bill(order: Order) -> Invoice:
        return Invoice(order.number)

    async with client.running_workers():
        found = await results(client, 2, schema=Invoice)
        await until_processed(client)
    assert {each.value.number for each in found} == {1, 2}
    assert {each.value.total for each in found} == {1.5}
    assert {each.key for each in found} == {"user-1"}
    del sent["mine"]
    assert [each.attributes for each in found] == [sent, sent]
    assert found[0].schema_version == 1
    assert count_of(await all_of(client), worker) == 2


async def test_a_function_without_async_publishes_from_a_thread(client, orders, worker):
    await send_orders(client, *range(10))
    idents = set()

    @worker(concurrency=3)
    def bill(order: Order) -> Invoice | None:
        idents.add(threading.get_ident())
        return Invoice(order.number) if order.number % 2 else None

    async with client.running_workers():
        found = await results(client, 5, schema=Invoice)
        await until_processed(client)
    assert {each.value.number for each in found} == {1, 3, 5, 7, 9}
    assert threading.get_ident() not in idents


async def test_results_say_their_key_attributes_and_delivery(client, orders, worker):
    await published(client, b"one")

    @worker()
    async def work(message: pydanube.Message) -> list[pydanube.Result[bytes] | None]:
        attributes = {"kind": "copy"}
        return [
            pydanube.Result(b"a", key="other", attributes=attributes, ttl_s=3600),
            None,
            pydanube.Result(b"b"),
        ]

    async with client.running_workers():
        first, second = await results(client, 2)
    assert (first.key, first.attributes, first.payload) == (
        "other",
        {"kind": "copy"},
        b"a",
    )
    assert first.expires_at is not None
    assert (second.key, second.attributes) == (None, {})


async def test_a_function_may_yield_and_forward_messages(client, orders):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"one", key="k", attributes={"a": "1"})
    worker = partial(client.worker, TOPIC, start="earliest", publish=RESULTS)

    @worker(subscription="1")
    def some(message: pydanube.Message) -> Iterator[str]:
        yield "first"
        yield "second"

    @worker(subscription="2")
    async def others(message: pydanube.Message) -> AsyncIterator[bytes]:
        yield b"third"
        await asyncio.sleep(0)
        yield b"fourth"

    @worker(subscription="3")
    async def forward(message: pydanube.Message) -> pydanube.Message:
        return message

    async with client.running_workers():
        found = {each.payload: each for each in await results(client, 5)}
    assert found.keys() == {b"first", b"second", b"third", b"fourth", b"one"}
    assert (found[b"one"].key, found[b"one"].attributes) == ("k", {"a": "1"})


@pytest.mark.parametrize("partitions", [None, 3])
async def test_a_batch_returns_a_list(client, worker, partitions):
    await client.topics.create(TOPIC, partitions=partitions)
    await client.topics.create(RESULTS, partitions=partitions)
    async with client.producer(TOPIC, schema=Order) as producer:
        for number in range(20):
            await producer.send(Order(number), key=str(number))

    @worker(batch=8)
    async def bill(orders: list[Order]) -> list[pydanube.Result[Invoice]]:
        return [
            pydanube.Result(Invoice(each.number), key=str(each.number))
            for each in orders
            if each.number % 2
        ]

    async with client.running_workers():
        found = await results(client, 10, schema=Invoice)
    assert {each.key: each.value.number for each in found} == {
        str(number): number for number in range(1, 20, 2)
    }


async def test_a_result_that_is_invalid_is_a_failure_of_its_message(
    client, orders, worker
):
    await send_orders(client, 1, 2, 3)

    @worker()
    async def bill(order: Order) -> list[Invoice]:
        good = Invoice(order.number)
        return [good, Invoice("no")] if order.number == 2 else [good]

    async with client.running_workers():
        found = await results(client, 2, schema=Invoice)
        [letter] = await results(client, 1, DEAD_LETTERS)
    assert {each.value.number for each in found} == {1, 3}
    assert letter.value == {"number": 2}
    assert "total" in str(letter.attributes) or "number" in str(letter.attributes)
    # Not even the valid result of the message that failed.
    assert count_of(await all_of(client), worker) == 2


async def test_results_of_a_key_keep_their_order_after_failures(client, orders, worker):
    async with client.producer(TOPIC) as producer:
        for number in range(20):
            await producer.send(str(number), key=str(number % 2))
    failed = set()

    @worker(order="key", concurrency=4)
    async def work(number: str) -> str:
        if int(number) % 5 == 0 and number not in failed:
            failed.add(number)
            raise ArithmeticError(number)
        return number

    async with client.running_workers():
        await results(client, 20)
    found = await all_of(client)
    assert count_of(found, worker) == 20
    for key in ("0", "1"):
        mine = dict.fromkeys(int(each.payload) for each in found if each.key == key)
        assert list(mine) == sorted(mine)


async def test_results_are_published_again_when_their_topic_is_created_again(
    client, orders, worker
):
    await published(client, b"one")
    may_return = asyncio.Event()

    @worker()
    async def work(message: pydanube.Message) -> bytes:
        if message.attempt > 1 and message.payload == b"two":
            await may_return.wait()
        return message.payload

    async with client.running_workers():
        await results(client, 1)
        await client.topics.delete(RESULTS, force=True)
        await published(client, b"two")
        while (await client.subscriptions.describe(TOPIC, "s")).backlog:
            if RESULTS not in await client.topics.list():
                await client.topics.create(RESULTS, exist_ok=True)
            may_return.set()
        assert {each.payload for each in await results(client, 1)} == {b"two"}


async def test_messages_whose_results_are_not_published_are_given_back(
    client, orders, worker
):
    await published(client, *[b"message"] * 5)
    never = asyncio.Event()
    begun = asyncio.Event()

    @worker(concurrency=2)
    async def work(message: pydanube.Message) -> bytes:
        if message.offset:
            begun.set()
            await never.wait()
        return b"done"

    async with client.running_workers(stop_timeout_s=0.01):
        await begun.wait()
        await results(client, 1)
    assert {each.payload for each in await all_of(client)} == {b"done"}
    assert (await client.subscriptions.describe(TOPIC, "s")).backlog >= 4


async def test_middlewares_are_around_decoding_calls_and_publication(
    client, orders, worker
):
    await send_orders(client, 1)
    await published(client, b"no JSON")
    seen = []
    both = asyncio.Event()

    @client.workers.middleware
    async def outer(message, call_next):
        try:
            returned = await call_next(message)
        except pydanube.InvalidPayload:
            seen.append("invalid")
            both.set()
            return None
        seen.append(f"outer {returned}")
        return returned

    @client.workers.middleware
    async def inner(message, call_next):
        returned = await call_next(message)
        seen.append(f"inner {returned}")
        return returned

    @client.workers.publish_middleware
    async def mark(result, call_next):
        marked = pydanube.Result(result.value, attributes={"by": "middleware"})
        await call_next(marked)
        seen.append("published")

    @worker()
    def bill(order: Order) -> Invoice:
        return Invoice(order.number)

    async with client.running_workers():
        [found] = await results(client, 1, schema=Invoice)
        await both.wait()
        # What a middleware does not raise is acknowledged.
        await until_processed(client)
    assert found.attributes == {"by": "middleware"}
    invoice = Invoice(1)
    # A publication that a lost connection ends begins again, after the other message.
    assert set(seen) == {"published", f"inner {invoice}", f"outer {invoice}", "invalid"}
    around = [step for step in seen if step != "invalid"]
    assert around[-3:] == ["published", f"inner {invoice}", f"outer {invoice}"]


async def test_too_many_results_are_a_failure(client, orders):
    await published(client, b"one")

    @client.worker(TOPIC, publish=RESULTS, **OPTIONS)
    def work(message: pydanube.Message) -> Iterator[bytes]:
        for _ in range(RESULTS_MAX * 2):
            yield b"result"

    async with client.running_workers():
        [letter] = await results(client, 1, DEAD_LETTERS)
    assert "more than 10000 results" in str(letter.attributes)
    assert await all_of(client) == []


def test_mistakes_are_explained():
    workers = pydanube.Workers()
    worker = partial(workers.worker, TOPIC, subscription="s")

    async def none(order: Order) -> None: ...
    async def two(order: Order) -> Order | Invoice: ...
    def yields(order: Order):
        yield order

    def no_middleware(message, call_next): ...

    for mistake, decorate, function in [
        ("-> None", worker(publish=RESULTS), none),
        ("values of one class", worker(publish=RESULTS), two),
        ("yields", worker(), yields),
        ("publish=", worker(exactly_once=True), two),
        ("invalid format", worker(publish="results"), two),
        ("no middleware", workers.middleware, no_middleware),
    ]:
        with pytest.raises(pydanube.InvalidRequest, match=mistake):
            decorate(function)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_results_come_while_topics_move_and_permissions_change(exactly_once):
    source, dead = "/default/source", "/default/dead"
    policy = pydanube.FailurePolicy(
        redelivery_delay_s=0.0,
        redeliveries_max=10,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=dead,
    )
    async with running({}) as guarded:
        root, alice, served = guarded.root, guarded.alice, guarded.served
        await root.namespaces.create("shop")
        # The results are those of another tenant, at another broker.
        target = guarded.name_at("/shop/t", beside=source, is_same=False)
        for topic in (source, dead, target):
            await root.topics.create(topic)
        await root.subscriptions.configure(source, "s", failure_policy=policy)
        await guarded.let("own", "/default/*", Permission.CONSUME, Permission.PRODUCE)
        await guarded.let("shop", "/shop/*", Permission.PRODUCE)

        @alice.worker(source, publish=target, exactly_once=exactly_once, **OPTIONS)
        async def copy(payload: bytes) -> bytes:
            return payload

        async def process(*payloads):
            await published(root, *payloads, topic=source)
            await eventually(is_done)

        async def is_done():
            return not (await root.subscriptions.describe(source, "s")).backlog

        async with alice.running_workers():
            await process(b"1", b"2")
            await guarded.let("shop", "/shop/*", Permission.CONSUME)
            await process(b"3", b"4")
            failed = await all_of(root, dead)
            assert [each.payload for each in failed] == [b"3", b"4"]
            assert "grants produce" in failed[0].attributes["x-failure-reason"]
            await guarded.let("shop", "/shop/*", Permission.PRODUCE)
            await process(b"5", b"6")
            for broker_id in ("a", "b"):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(served.drain(broker_id))
                    tasks.create_task(
                        process(*(b"%s %d" % (broker_id.encode(), n) for n in range(9)))
                    )
                await served.activate(broker_id)
        found = await guarded.read(target)
        moved = {b"%s %d" % (each, n) for each in (b"a", b"b") for n in range(9)}
        assert {*found} == {b"1", b"2", b"5", b"6"} | moved
        if exactly_once:
            assert len(found) == len({*found})
        assert len(await all_of(root, dead)) == 2
