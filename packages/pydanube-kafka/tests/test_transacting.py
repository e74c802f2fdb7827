"""Requests of transactions are checked, may be repeated, and have a time limit."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest

from pydanube.aio.tasks import gather
from pydanube.model.errors import StagedPartNotFound, Unavailable
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube_broker.broker.serving.subscriptions import NOTE_LENGTH_MAX
from pydanube_broker.broker.staging.transaction_acks import NOTES_LENGTH_MAX
from pydanube_kafka.samples import of_kafka
from pydanube_kafka.transacting import OPEN_S_LATE, PARTITIONS_MAX, Transactions
from pydanube_kafka.transaction_parts import query_of
from pydanube_kafka.wire.apis import Api, ErrorCode
from support.drivers.kafka_requests import KafkaRequests, kafka_broker
from support.drivers.kafka_transactions import ID, Producer

pytestmark = pytest.mark.slow

TOPIC = TopicName.parse("/default/orders")
RESULTS = TopicName.parse("/default/results")


class World:
    """A broker in memory with the listener, and a connection to it."""

    def __init__(self, memory, client, server, raw):
        self.memory, self.client, self.server, self.raw = memory, client, server, raw

    async def values(self, topic=TOPIC):
        batches = self.client.read(str(topic))
        return [each.payload async for batch in batches for each in batch]


@asynccontextmanager
async def opened():
    async with kafka_broker() as (memory, client, server, raw):
        await memory.broker.topics.create(TOPIC, TopicPolicy())
        yield World(memory, client, server, raw)


async def test_requests_may_be_repeated():
    async with opened() as world:
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.add()
        for sequence in (0, 0, 1, 0):
            assert not await producer.produce(b"%d" % sequence, sequence)
        gap = await producer.produce(b"9", 9)
        assert gap is ErrorCode.out_of_order_sequence_number
        assert await world.values() == []
        assert not await producer.end()
        assert not await producer.end()
        assert await world.values() == [b"0", b"1"]
        # The sequences go on in the next transaction.
        assert not await producer.add()
        assert not await producer.produce(b"2", 2)
        assert not await producer.end()
        assert await world.values() == [b"0", b"1", b"2"]


async def test_requests_that_do_not_fit_are_refused():
    async with opened() as world:
        producer = Producer(world.raw)
        unknown = ErrorCode.invalid_producer_id_mapping
        assert await producer.add() is unknown
        too_long = await producer.init(timeout_s=10_000.0)
        assert too_long is ErrorCode.invalid_transaction_timeout
        assert not await producer.init()
        assert await producer.end() is ErrorCode.invalid_txn_state
        assert not await producer.end(committed=False)
        assert await producer.produce(b"1", 0) is ErrorCode.invalid_txn_state
        missing = await producer.add("missing")
        assert missing is ErrorCode.unknown_topic_or_partition
        assert not await producer.add()
        await world.memory.broker.topics.create(
            TopicName.parse("/default/other"), TopicPolicy()
        )
        other = await producer.produce(b"1", 0, topic="other")
        assert other is ErrorCode.invalid_txn_state
        beyond = await producer.commit_offset("g", 7)
        assert beyond is ErrorCode.offset_out_of_range
        assert not await producer.end()
        assert await world.values() == []


async def test_too_many_partitions_are_refused_before_they_are_looked_up():
    async with opened() as world:
        too_many, refused = PARTITIONS_MAX + 1, {ErrorCode.invalid_request}
        types = world.raw.types(Api.ADD_PARTITIONS_TO_TXN, 3)
        topic = types.AddPartitionsToTxnTopic(
            name="missing", partitions=tuple(range(too_many))
        )
        answer = await world.raw.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=(topic,),
        )
        (result,) = answer.results_by_topic_v3_and_below
        found = [each.partition_error_code for each in result.results_by_partition]
        assert len(found) == too_many
        assert set(found) == refused
        producer = Producer(world.raw)
        assert await producer.commit_offset("g", 1, count=too_many) in refused


async def test_an_earlier_epoch_is_fenced():
    async with opened() as world:
        first, second = Producer(world.raw), Producer(world.raw)
        assert not await first.init()
        assert not await first.add()
        assert not await first.produce(b"1", 0)
        assert not await second.init(known=(first.producer_id, first.epoch))
        assert second.producer_id == first.producer_id
        assert second.epoch == first.epoch + 1
        for refused in (first.add(), first.produce(b"2", 1), first.end()):
            assert await refused is ErrorCode.invalid_producer_epoch
        assert not await second.add()
        again = await first.init(known=(first.producer_id, first.epoch))
        assert again is ErrorCode.producer_fenced
        assert await world.values() == []


async def test_a_transaction_that_takes_too_long_is_given_up():
    async with opened() as world:
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.produce(b"1", 0)
        transactions = world.server.transactions
        await transactions.change(
            ID, lambda state: msgspec.structs.replace(state, deadline=0)
        )
        transactions.sweep()
        while not (await transactions.get(ID)).is_fenced:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await producer.end() is ErrorCode.invalid_producer_epoch
        assert transactions.timed_out_count == 1
        assert not await producer.init()
        assert not await producer.add()
        transactions.sweep()
        assert not transactions.problems()
        transactions.oldest_s = OPEN_S_LATE + 60
        assert "open for 11m" in transactions.problems()[0]
        transactions.sweep()
        found = {each.name: value for each, _, value in await of_kafka(world.server)}
        assert found["danube_kafka_transactions_open"] == 1
        assert found["danube_kafka_transactions_timed_out_total"] == 1
        assert not await producer.end()
        transactions.sweep()
        assert not transactions.open_count
        assert await world.values() == []


async def test_offsets_are_committed_with_the_records_or_not_at_all():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        producer = Producer(world.raw)
        assert not await producer.init()
        for offset, committed, cursor in ((2, False, None), (2, True, 2), (3, True, 3)):
            assert not await producer.add()
            assert not await producer.commit_offset("g", offset)
            assert not await producer.end(committed=committed)
            found = world.memory.broker.topics.opened[TOPIC].subscriptions.get("g")
            assert (found and found.cursor_offset) == cursor


async def test_texts_of_offsets_are_kept_with_them():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        producer = Producer(world.raw)
        assert not await producer.init()
        too_large = ErrorCode.offset_metadata_too_large
        for offset, text in ((1, "one"), (2, "é" * NOTE_LENGTH_MAX), (3, "")):
            assert not await producer.add()
            longer = "x" * (NOTE_LENGTH_MAX + 1)
            assert await producer.commit_offset("g", 3, text=longer) is too_large
            assert not await producer.commit_offset("g", offset, text=text)
            assert not await producer.end()
            found = await fetch_partition(world.raw, "g")
            assert (found.committed_offset, found.metadata) == (offset, text)
        assert not await producer.add()
        count = NOTES_LENGTH_MAX // NOTE_LENGTH_MAX
        for number in range(count + 1):
            group, text = f"g{number}", "x" * NOTE_LENGTH_MAX
            answer = await producer.commit_offset(group, 1, text=text)
            assert answer is (too_large if number == count else ErrorCode.none)
        assert not await producer.end()
        found = await fetch_partition(world.raw, f"g{count - 1}")
        assert found.metadata == "x" * NOTE_LENGTH_MAX


async def test_a_commit_that_is_refused_commits_no_first_offset():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        await world.client.topics.create(str(RESULTS))
        producer = Producer(world.raw)
        assert not await producer.init()
        for number, committed in enumerate((-1, 0, 2)):
            assert not await producer.add("results")
            assert not await producer.produce(b"r", number, topic="results")
            assert not await producer.commit_offset("g", committed % 3)
            if committed < 0:
                await world.client.topics.delete(str(RESULTS))
                assert await producer.end() is ErrorCode.unknown_producer_id
                assert not await producer.end(committed=False)
                await world.client.topics.create(str(RESULTS))
            else:
                assert not await producer.end()
            assert await fetch_offset(world.raw, "g") == (committed, ErrorCode.none)


async def test_a_first_offset_that_acknowledges_nothing_is_committed():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        producer = Producer(world.raw)
        assert not await producer.init()
        for group, text in (("g", "text"), ("h", "")):
            assert not await producer.add()
            assert not await producer.commit_offset(group, 0, text=text)
            assert not await producer.end()
            found = await fetch_partition(world.raw, group)
            assert (found.committed_offset, found.metadata) == (0, text)


async def test_requests_that_begin_a_transaction_together_begin_one():
    async with opened() as world, KafkaRequests(world.raw.port) as other:
        producer = Producer(world.raw)
        assert not await producer.init()
        same = Producer(other, producer.producer_id, producer.epoch)
        for sequence in range(3):
            codes = await gather([producer.add(), same.add()])
            assert not any(codes)
            assert not await producer.produce(b"%d" % sequence, sequence)
            assert not await producer.end()
        assert await world.values() == [b"0", b"1", b"2"]


async def test_a_fenced_producer_does_not_disturb_the_next_one():
    async with opened() as world:
        first, second = Producer(world.raw), Producer(world.raw)
        assert not await first.init()
        assert not await second.init()
        assert not await second.add()
        assert not await second.produce(b"1", 0)
        world.server.transactions.sweep()
        fenced = await first.produce(b"x", 7)
        assert fenced is ErrorCode.invalid_producer_epoch
        assert not await second.produce(b"1", 0)
        assert not await second.end()
        assert await world.values() == [b"1"]


async def test_a_record_that_was_lost_refuses_the_commit():
    async with opened() as world:
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.produce(b"1", 0)
        (part,) = world.memory.broker.staging.parts
        part.fail(StagedPartNotFound("the disk has lost it"))
        again = await producer.produce(b"2", 1)
        assert again is ErrorCode.transaction_abortable
        assert await producer.end() is ErrorCode.unknown_producer_id
        assert not await producer.end(committed=False)
        assert await world.values() == []
        assert not await producer.add()
        assert not await producer.produce(b"3", 1)
        assert not await producer.end()
        assert await world.values() == [b"3"]


async def test_offsets_are_unstable_until_their_transaction_ends():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.commit_offset("g", 2)
        unstable = ErrorCode.unstable_offset_commit
        assert await fetch_offset(world.raw, "g", stable=True) == (-1, unstable)
        assert await fetch_offset(world.raw, "g") == (-1, ErrorCode.none)
        assert await fetch_offset(world.raw, "h", stable=True) == (-1, ErrorCode.none)
        assert not await producer.end()
        assert await fetch_offset(world.raw, "g", stable=True) == (2, ErrorCode.none)


async def test_stable_offsets_that_are_asked_for_together_cost_two_reads():
    reads, go_on = [], asyncio.Event()
    acks = SimpleNamespace(subscription="g", name=str(TOPIC))

    async def read_writers():
        reads.append(len(reads))
        if len(reads) == 1:
            await go_on.wait()
            raise Unavailable("later")
        return [(query_of(ID), SimpleNamespace(revision=1, content=b"", acks=(acks,)))]

    broker = SimpleNamespace(staging=SimpleNamespace(read_writers=read_writers))
    transactions = Transactions(broker, None, None, 1, None)

    async def first():
        with pytest.raises(Unavailable):
            await transactions.pending("g")

    async def later():
        while not reads:  # noqa: ASYNC110
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(go_on.set)
        return await gather(transactions.pending(each) for each in "gghh")

    _, found = await gather((first(), later()))
    # The read that had begun was too early for them.
    assert found == [{str(TOPIC)}, {str(TOPIC)}, (), ()]
    assert len(reads) == 2
    assert await transactions.pending("g") == {str(TOPIC)}
    assert len(reads) == 3


async def fetch_offset(raw, group, *, stable=False):
    """The committed offset of a group, and the error."""
    found = await fetch_partition(raw, group, stable=stable)
    return found.committed_offset, found.error_code


async def fetch_partition(raw, group, *, stable=False):
    """What a group has committed."""
    types = raw.types(Api.OFFSET_FETCH, 7)
    topic = types.OffsetFetchRequestTopic(name="orders", partition_indexes=(0,))
    answer = await raw.ask(
        Api.OFFSET_FETCH, 7, group_id=group, topics=(topic,), require_stable=stable
    )
    (found,) = answer.topics[0].partitions
    return found


async def test_what_ends_a_transaction_lets_its_producer_abort_and_go_on():
    async with opened() as world:
        broker, lost = world.memory.broker, ErrorCode.unknown_producer_id
        producer = Producer(world.raw)
        assert not await producer.init()

        async def begin(sequence):
            assert not await producer.add()
            assert not await producer.produce(b"lost", sequence)

        async def end():
            assert await producer.end() is lost
            assert not await producer.end(committed=False)
            assert await world.values() == []

        await begin(0)
        quota = QuotaTarget.parse(str(TOPIC))
        await broker.quotas.set(quota, Quota(storage_bytes=1000))
        broker.topics.opened[TOPIC].pacing.add("storage_bytes", 1000)
        await end()
        assert not await producer.add()
        refused = await producer.produce(b"1", 1)
        assert refused is ErrorCode.policy_violation
        await broker.quotas.remove(quota)
        assert not await producer.end(committed=False)

        await begin(1)
        reserve = broker.storage.journal.reserve
        reserve.is_released = True
        # Not an error after which clients send the same again and again.
        abortable = ErrorCode.transaction_abortable
        assert await producer.produce(b"2", 2) is abortable
        reserve.is_released = False
        assert await producer.produce(b"2", 2) is abortable
        await end()

        # Clients may count the batch that has failed for the next one, or may not.
        await begin(3)
        reserve.is_released = True
        assert await producer.produce(b"4", 4) is abortable
        reserve.is_released = False
        assert not await producer.end(committed=False)
        await begin(4)
        await broker.topics.delete(TOPIC)
        await broker.topics.create(TOPIC, TopicPolicy())
        await end()

        assert not await producer.add()
        assert not await producer.produce(b"kept", 5)
        assert not await producer.end()
        assert await world.values() == [b"kept"]


async def test_a_commit_that_is_decided_on_a_full_disk_is_carried_out_later():
    async with opened() as world:
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.produce(b"1", 0)
        reserve = world.memory.broker.storage.journal.reserve
        reserve.is_released = True
        assert await producer.end() is ErrorCode.coordinator_not_available
        assert await world.values() == []
        reserve.is_released = False
        assert not await producer.end()
        assert await world.values() == [b"1"]


@pytest.mark.parametrize(("before", "cursor"), [(1, 3), (3, 3), (4, 4)])
async def test_messages_may_be_trimmed_before_a_commit_acknowledges_them(
    before, cursor
):
    async with opened() as world:
        topics = world.memory.broker.topics
        await topics.create(RESULTS, TopicPolicy())
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"%d" % each for each in range(5)])
        producer = Producer(world.raw)
        assert not await producer.init()
        # The group has a cursor before the transaction that meets the trimming.
        for sequence, offset in enumerate((0, 3)):
            assert not await producer.add("results")
            assert not await producer.produce(b"result", sequence, topic="results")
            assert not await producer.commit_offset("g", offset)
            if offset:
                await world.client.topics.trim(str(TOPIC), before=before)
            assert not await producer.end()
        group = topics.opened[TOPIC].subscriptions["g"]
        assert group.cursor_offset == cursor
        assert await world.values(RESULTS) == [b"result"] * 2


async def test_what_others_have_acknowledged_refuses_a_commit_also_if_trimmed():
    async with opened() as world:
        async with world.client.producer(str(TOPIC)) as native:
            await native.send_batch([b"a", b"b", b"c"])
        producer = Producer(world.raw)
        assert not await producer.init()
        assert not await producer.add()
        assert not await producer.commit_offset("g", 1)
        assert not await producer.end()
        assert not await producer.add()
        assert not await producer.commit_offset("g", 3)
        await world.client.topics.trim(str(TOPIC), before=2)
        await world.client.subscriptions.seek(str(TOPIC), "g", 3)
        # An error that the client answers by aborting.
        assert await producer.end() is ErrorCode.unknown_producer_id
        assert not await producer.end(committed=False)
        assert not await producer.add()
