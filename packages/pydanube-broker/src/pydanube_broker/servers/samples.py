"""The values of all metrics of a broker; see ``pydanube/model/metrics.py``."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from pydanube.aio.long_work import LongWork
from pydanube.model import metrics
from pydanube.model.metrics import Sample
from pydanube.model.version import __version__
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.servers.topic_samples import (
    FIRST_TOPICS,
    TopicSamples,
    TopicSeries,
)
from pydanube_broker.storage.remote.uploading import Uploader
from pydanube_broker.storage.segments.remote_segments import RemoteSegments


async def samples_of(
    broker: Broker,
    server: NativeServer,
    services: Sequence[Service],
    connections: Sequence[ConnectionCounts] = (),
    series: TopicSeries = FIRST_TOPICS,
    *,
    is_ready: bool,
) -> list[Sample]:
    """
    Return the current values of all metrics.

    Other tasks run while it looks at many topics and subscriptions.
    """
    work, topics = LongWork(), TopicSamples(series, time.time_ns() // 1000)
    await topics.add(list(broker.topics.opened.values()), work)
    tail_bytes = 0
    for topic_log in list(broker.storage.memory.unsealed.values()):
        tail_bytes += topic_log.tail.byte_count
        await work.did()
    return [
        *_of_server(broker, server, services, connections, is_ready=is_ready),
        *_totals(broker, server),
        *topics.samples(),
        (metrics.TAIL_BYTES, (), tail_bytes),
        *_of_storage(broker),
        *(() if broker.shards is None else _of_shards(broker.shards)),
    ]


def _of_server(
    broker: Broker,
    server: NativeServer,
    services: Sequence[Service],
    connections: Sequence[ConnectionCounts],
    *,
    is_ready: bool,
) -> Iterator[Sample]:
    yield metrics.BUILD_INFO, (__version__,), 1
    yield metrics.READY, (), float(is_ready)
    for errors in (server.errors, *(service.errors for service in services)):
        for code, count in errors.items():
            yield metrics.ERRORS, (code,), count
    for kind, seconds in list(server.request_seconds.items()):
        yield metrics.REQUEST_SECONDS, (kind.name.lower(),), seconds
    for service in services:
        for path, method in service.methods.items():
            if method.seconds.count:
                yield metrics.REQUEST_SECONDS, (path[1:],), method.seconds
    yield metrics.CONNECTIONS, (), len(server.connections)
    yield metrics.CONNECTIONS_OPENED, (), server.connections_total
    yield metrics.CONNECTIONS_REFUSED, (), server.refused_total
    yield metrics.CONNECTIONS_TIMED_OUT, (), server.timed_out_total
    plain = server.plain_batches
    yield metrics.BATCHES_DECOMPRESSED, (), plain.decompressed_total
    yield metrics.BATCHES_DECOMPRESSED_BYTES, (), plain.decompressed_bytes_total
    audit = server.broker.audit
    yield metrics.AUDIT_RECORDS, (), audit.recorded_count
    yield metrics.AUDIT_DROPPED, (), audit.dropped_count
    yield metrics.AUDIT_FAILED, (), audit.failed_count
    yield metrics.AUDIT_SUPPRESSED, (), audit.suppressed_count
    for credential, count in server.authenticator.failed_count.items():
        yield metrics.AUTHENTICATION_FAILURES, (credential,), count
    quotas = broker.quotas.counts
    for (scope, limit), throttled_s in quotas.throttled_s.items():
        yield metrics.QUOTA_THROTTLED_SECONDS, (scope.value, limit), throttled_s
    for (scope, limit), count in quotas.refused.items():
        yield metrics.QUOTA_REFUSALS, (scope.value, limit), count
    for health, count in broker.connectors.counts().items():
        yield metrics.STORED_CONNECTORS, (health.value,), count
    yield metrics.RECEIVE_BYTES, (), server.receive_memory.reserved_bytes
    for counts in connections:
        listener = (counts.listener,)
        yield metrics.LISTENER_CONNECTIONS, listener, counts.open_count
        yield metrics.LISTENER_CONNECTIONS_REFUSED, listener, counts.refused_total
        yield metrics.LISTENER_CONNECTIONS_TIMED_OUT, listener, counts.silent_total
        yield metrics.LISTENER_CONNECTIONS_BROKEN, listener, counts.abusive_total
    yield metrics.TOPICS, (), len(broker.topics.opened)
    yield metrics.TOPIC_FAILURES, (), broker.topics.failures.count
    yield metrics.DAMAGED_RECORDS, (), len(broker.damaged_records)


def _totals(broker: Broker, server: NativeServer) -> Iterator[Sample]:
    yield metrics.CONSUMERS, (), broker.counts.consumers
    yield metrics.PUBLISH_SECONDS, (), server.publish_seconds
    yield metrics.DELIVERY_AGE_SECONDS, (), broker.counts.delivery_age
    counts = broker.counts
    yield metrics.MESSAGES_IN, (), counts.published
    yield metrics.BYTES_IN, (), counts.published_bytes
    yield metrics.MESSAGES_OUT, (), counts.delivered + server.fetched
    yield metrics.BYTES_OUT, (), counts.delivered_bytes + server.fetched_bytes
    yield metrics.MESSAGES_DROPPED, (), counts.dropped
    yield metrics.MESSAGES_REDELIVERED, (), counts.redelivered
    yield metrics.MESSAGES_NACKED, (), counts.nacked
    yield metrics.ACK_TIMEOUTS, (), counts.timed_out
    yield metrics.MESSAGES_EXPIRED, (), counts.expired
    yield metrics.MESSAGES_DEAD_LETTERED, (), counts.dead_lettered
    yield metrics.DEAD_LETTER_FAILURES, (), counts.dead_letter_failures
    yield metrics.MESSAGES_GIVEN_UP, (), counts.given_up
    yield metrics.MESSAGES_SKIPPED, (), counts.skipped


def _of_storage(broker: Broker) -> Iterator[Sample]:
    storage = broker.storage
    journal, memory, sealer = storage.journal, storage.memory, storage.sealer
    yield metrics.TAIL_MEMORY_BYTES, (), memory.byte_count
    yield metrics.JOURNAL_BYTES, (), journal.byte_count
    yield metrics.JOURNAL_FILES, (), journal.file_count
    yield metrics.JOURNAL_PENDING_BYTES, (), journal.pending_bytes
    yield metrics.JOURNAL_SYNCS, (), journal.sync_count
    yield metrics.JOURNAL_COMMIT_SECONDS, (), journal.commit_seconds
    yield metrics.JOURNAL_FAILURES, (), journal.failure_count
    staging = broker.staging
    yield metrics.STAGED_PARTS, (), len(staging.parts)
    yield metrics.STAGED_BYTES, (), staging.parts.byte_count
    yield metrics.STAGED_COMMITS, (), staging.commit_count
    yield metrics.STAGED_MESSAGES, (), staging.committed_messages
    yield metrics.STAGED_COMMITS_UNDONE, (), staging.pending_count
    yield metrics.STAGED_PARTS_EXPIRED, (), staging.parts.expired_count
    yield metrics.STAGED_MESSAGES_DROPPED, (), staging.dropped_count
    yield metrics.SEGMENTS, (), storage.segment_totals.count
    yield metrics.SEGMENT_BYTES, (), storage.segment_totals.byte_count
    yield metrics.CORRUPT_SEGMENTS, (), storage.corrupt_segment_count
    yield metrics.SEALING_SECONDS, (), sealer.sealing_seconds
    yield metrics.SEALING_FAILURES, (), sealer.failure_count
    yield metrics.SEGMENTS_MERGED, (), storage.merger.merged_count
    is_full = journal.reserve.is_released or bool(journal.refusal)
    yield metrics.DISK_FULL, (), int(is_full)
    yield metrics.FAILING_TOPICS, (), len(sealer.failing)
    if storage.uploader is not None:
        yield from _of_uploads(storage.uploader)
    if storage.cache.remote is not None:
        yield from _of_remote_reads(storage.cache.remote)


def _of_remote_reads(remote: RemoteSegments) -> Iterator[Sample]:
    yield metrics.REMOTE_READS, (), remote.request_count
    yield metrics.REMOTE_READ_BYTES, (), remote.byte_count
    yield metrics.REMOTE_READ_FAILURES, (), remote.failure_count
    if remote.cache is not None:
        yield metrics.READ_CACHE_BYTES, (), remote.cache.byte_count
        yield metrics.READ_CACHE_HITS, (), remote.cache.hit_count


def _of_uploads(uploader: Uploader) -> Iterator[Sample]:
    counts, tiers = uploader.counts, uploader.tiers
    yield metrics.LOCAL_SEGMENT_BYTES, (), tiers.local_bytes
    yield metrics.UPLOAD_BACKLOG, (), len(tiers.backlog)
    yield metrics.UPLOAD_BACKLOG_BYTES, (), tiers.backlog_bytes
    yield metrics.UPLOAD_BACKLOG_AGE, (), uploader.oldest_age_s
    yield metrics.UPLOAD_SECONDS, (), counts.seconds
    yield metrics.UPLOADED_BYTES, (), counts.uploaded_bytes
    yield metrics.UPLOAD_FAILURES, (), counts.failures
    yield metrics.EVICTIONS, (), uploader.evictor.count


def _of_shards(shards: Shards) -> Iterator[Sample]:
    counts, lease = shards.owners.counts, shards.owners.lease
    yield metrics.CLUSTER_SHARDS, (), len(shards.served)
    yield metrics.CLUSTER_CLAIMS, (), counts.claims
    yield metrics.CLUSTER_SHARDS_SERVED, (), counts.served
    yield metrics.CLUSTER_TAKEOVERS, (), counts.takeovers
    yield metrics.CLUSTER_TAKEOVER_SECONDS, (), counts.takeover_s
    yield metrics.CLUSTER_TAKEOVER_FAILURES, (), counts.failures
    yield metrics.CLUSTER_MOVES, (), counts.released
    yield metrics.CLUSTER_LOST_TOPICS, (), counts.lost_topics
    yield metrics.CLUSTER_LOST_SESSIONS, (), counts.lost_sessions
    if math.isinf(lease.ttl_s):
        # The session of a process of this machine ends with the process.
        return
    yield metrics.CLUSTER_SESSION_TTL, (), lease.ttl_s
    yield metrics.CLUSTER_SESSION_MARGIN, (), lease.least_margin_s
    yield metrics.CLUSTER_SESSION_NEAR_LOSSES, (), lease.margin.near_losses
    yield metrics.CLUSTER_LOOP_GAP, (), lease.longest_gap_s
