"""A transactional producer of Kafka's protocol that sends single requests."""

from __future__ import annotations

from datetime import timedelta

from pydanube_kafka.wire.apis import Api
from pydanube_kafka.wire.record_batches import Records, encode_batch

ID = "tx/1"
"""Its transactional id."""


class Producer:
    """A transactional producer that sends single requests."""

    def __init__(self, raw, producer_id=-1, epoch=-1):
        self.raw = raw
        self.producer_id, self.epoch = producer_id, epoch

    async def init(self, *, known=(-1, -1), timeout_s=60.0):
        answer = await self.raw.ask(
            Api.INIT_PRODUCER_ID,
            4,
            transactional_id=ID,
            transaction_timeout=timedelta(seconds=timeout_s),
            producer_id=known[0],
            producer_epoch=known[1],
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def add(self, topic="orders", partition=0):
        types = self.raw.types(Api.ADD_PARTITIONS_TO_TXN, 3)
        added = types.AddPartitionsToTxnTopic(name=topic, partitions=(partition,))
        answer = await self.raw.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(added,),
        )
        (result,) = answer.results_by_topic_v3_and_below
        return result.results_by_partition[0].partition_error_code

    async def produce(self, value, sequence, topic="orders"):
        data = encode_batch(
            Records(timestamps=[1], keys=[None], values=[value], headers=[()]),
            [0],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        answer = await self.raw.produce(topic, value, data=data, transactional_id=ID)
        return answer.error_code

    async def commit_offset(self, group, offset, *, count=1, text=None):
        types = self.raw.types(Api.TXN_OFFSET_COMMIT, 3)
        partition = types.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=text,
        )
        topic = types.TxnOffsetCommitRequestTopic(
            name="orders", partitions=(partition,) * count
        )
        answer = await self.raw.ask(
            Api.TXN_OFFSET_COMMIT,
            3,
            transactional_id=ID,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(topic,),
        )
        return answer.topics[0].partitions[0].error_code

    async def end(self, *, committed=True):
        answer = await self.raw.ask(
            Api.END_TXN,
            3,
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return answer.error_code
