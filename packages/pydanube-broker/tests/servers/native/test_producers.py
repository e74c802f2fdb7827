"""Batches that are refused, and those before and after them."""

import asyncio

import pytest

from pydanube.model.errors import BrokerError, QuotaExceeded, SchemaMismatch
from pydanube.security.quotas import Quota, QuotaTarget
from support.drivers.running import TOPIC
from support.fakes.storages import until

NAMESPACE = QuotaTarget.parse("/default")
KIB = 1024


async def offset_or_error(sending):
    try:
        return (await sending).offsets[0]
    except BrokerError as error:
        return type(error)


def sent_at_once(tasks, producer, payloads):
    """Send each of *payloads* as a batch; return the offsets or errors."""
    works = [producer.send_batch([each]) for each in payloads]
    return [tasks.create_task(offset_or_error(each)) for each in works]


async def test_batches_before_one_that_a_full_storage_refuses_are_acknowledged(
    broker, client
):
    quotas = broker.broker.quotas
    await quotas.set(NAMESPACE, Quota(storage_bytes=KIB))
    async with client.producer(TOPIC) as producer:
        # The first batch fills the storage, and is not on disk when the others come.
        async with asyncio.TaskGroup() as tasks:
            sent = sent_at_once(tasks, producer, [bytes(4 * KIB), b"a", b"b"])
        assert [each.result() for each in sent] == [0, QuotaExceeded, QuotaExceeded]
        await quotas.remove(NAMESPACE)
        assert (await producer.send(b"c")).offset == 1


async def test_only_the_batch_that_is_refused_late_fails(broker, client, monkeypatch):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"first")
        [topic] = broker.broker.topics.opened.values()
        publish, taken = topic.publish, []

        def publish_later(session, frame, done):
            taken.append((session, frame, done))

        monkeypatch.setattr(topic, "publish", publish_later)
        async with asyncio.TaskGroup() as tasks:
            sent = sent_at_once(tasks, producer, [b"a", b"b", b"c"])
            await until(lambda: len(taken) == 3)
            monkeypatch.setattr(topic, "publish", publish)
            # Schemas are validated faster than batches are written.
            *_, done = taken[1]
            done(0, SchemaMismatch("on purpose"))
            publish(*taken[0])
        assert [each.result() for each in sent] == [1, SchemaMismatch, 2]


async def test_exclusive_producer_keeps_its_access_when_a_batch_is_refused(
    broker, client
):
    quotas, has_access = broker.broker.quotas, asyncio.Event()

    async def stand_by():
        async with client.producer(TOPIC, name="standby", access="exclusive_wait"):
            has_access.set()

    async with asyncio.TaskGroup() as tasks:
        async with client.producer(TOPIC, access="exclusive") as producer:
            await producer.send(bytes(4 * KIB))
            tasks.create_task(stand_by())
            [topic] = broker.broker.topics.opened.values()
            await until(lambda: topic.registrations.queued_count)
            await quotas.set(NAMESPACE, Quota(storage_bytes=KIB))
            with pytest.raises(QuotaExceeded):
                await producer.send(b"x")
            await quotas.remove(NAMESPACE)
            await producer.send(b"x")
            assert not has_access.is_set()
        await has_access.wait()
