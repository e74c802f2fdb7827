"""Operations on the storage of a broker, and on backups."""

from __future__ import annotations

from functools import partial

from pydanube.model.errors import InvalidRequest
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.backups import Backups
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.handlers import Call, operation


@operation
async def describe_storage(call: Call, _: pb.DescribeStorage) -> pb.StorageDescription:
    """Return the state of the storage of this broker."""
    return to_wire(
        pb.StorageDescription,
        call.broker.storage.describe(),
        problems=call.broker.problems,
    )


@operation
async def upload_segments(call: Call, m: pb.UploadSegments) -> None:
    """Upload sealed segments to the remote object store now."""
    uploader = call.broker.storage.require_uploader()
    topic_ids = await _topic_ids_of(call.broker, m.topic)
    if m.is_sealing:
        await call.broker.storage.sealer.seal_now(topic_ids)
    if topic_ids is None:
        await call.broker.topics.open_ids(uploader.unopened_topics(), "upload segments")
    await uploader.upload_now(topic_ids)


async def _topic_ids_of(broker: Broker, topic: str) -> set[TopicId] | None:
    """Return the id of *topic*; None, which stands for all topics, if it is empty."""
    if not topic:
        return None
    return {(await broker.topics.get_reliable(TopicName.parse(topic))).topic_id}


@operation
async def evict_segments(call: Call, m: pb.EvictSegments) -> pb.SegmentsEvicted:
    """Remove local copies of segments that are in the remote object store."""
    uploader = call.broker.storage.require_uploader()
    count, byte_count = await uploader.evict(await _topic_ids_of(call.broker, m.topic))
    return pb.SegmentsEvicted(count=count, byte_count=byte_count)


@operation
async def verify_segments(call: Call, m: pb.VerifySegments) -> pb.SegmentsVerified:
    """Verify the checksums of a page of segments."""
    topic_ids = None
    if m.topic:
        # Without opening the topics, which may be impossible if they are damaged.
        topic_ids = await call.broker.catalog.reliable_ids(TopicName.parse(m.topic))
    if call.broker.shard_serving is not None:
        # Other brokers have the local copies of the others.
        served = await call.broker.shard_serving.served_ids()
        topic_ids = served if topic_ids is None else topic_ids & served
    verified = await call.broker.storage.verification.verify_page(
        topic_ids,
        m.after,
        bytes_per_s=m.bytes_per_s,
        is_repairing=m.is_repairing,
        open_source=partial(call.broker.stores.open, m.source) if m.source else None,
        is_counting=m.is_counting,
    )
    return to_wire(pb.SegmentsVerified, verified)


@operation
async def copy_segments(call: Call, m: pb.CopySegments) -> pb.SegmentsVerified:
    """Copy a page of segments to another object store."""
    copying = call.broker.storage.require_store_copying()
    open_target = partial(call.broker.stores.open, m.store)
    if m.is_finishing:
        copied = await copying.finish(open_target)
    else:
        copied = await copying.copy_page(
            open_target,
            m.after,
            bytes_per_s=m.bytes_per_s,
            is_counting=m.is_counting,
        )
    return to_wire(pb.SegmentsVerified, copied)


@operation
async def create_backup(call: Call, m: pb.CreateBackup) -> pb.BackupProgress:
    """Begin a backup to a store that the settings of the broker name."""
    begun = await _backups_of(call.broker).begin(m.store)
    return to_wire(pb.BackupProgress, begun)


def _backups_of(broker: Broker) -> Backups:
    if broker.backups is None:
        raise InvalidRequest(
            "only brokers with metadata in an SQLite file in a data directory can be "
            "backed up"
        )
    return broker.backups


@operation
async def describe_backup(call: Call, m: pb.DescribeBackup) -> pb.BackupProgress:
    """Return the progress of the last backup."""
    return to_wire(pb.BackupProgress, _backups_of(call.broker).progress)
