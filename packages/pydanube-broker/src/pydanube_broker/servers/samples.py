"""The values of all metrics of a broker; see ``pydanube/model/metrics.py``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pydanube.model import metrics
from pydanube.model.metrics import Sample
from pydanube.model.topic_patterns import TopicPattern
from pydanube.model.version import __version__
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.serving.findings import problems_of
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.storage.remote.uploading import Uploader
from pydanube_broker.storage.segments.remote_segments import RemoteSegments


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeries:
    """Which topics and subscriptions have series of their own."""

    series_max: int = metrics.SERIES_MAX
    """The maximum number of topics, and of subscriptions of each topic."""
    pattern: TopicPattern | None = None
    """If not None, only the topics that match have series, and there are no others."""


def samples_of(
    broker: Broker,
    server: NativeServer,
    services: Sequence[Service],
    connections: Sequence[ConnectionCounts] = (),
    series: TopicSeries = TopicSeries(),
    *,
    is_ready: bool,
) -> Iterator[Sample]:
    """Yield the current values of all metrics, without waiting."""
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
    yield from _totals(broker, server)
    yield from _of_topics(broker, series)
    yield from _of_storage(broker)
    if broker.shards is not None:
        yield from _of_shards(broker.shards)


def _totals(broker: Broker, server: NativeServer) -> Iterator[Sample]:
    topics = list(broker.topics.opened.values())
    subscriptions = [s for topic in topics for s in topic.subscriptions.values()]
    yield metrics.PRODUCERS, (), sum(len(t.registrations) for t in topics)
    yield metrics.CONSUMERS, (), broker.counts.consumers
    yield metrics.SUBSCRIPTIONS, (), len(subscriptions)
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
    yield from _problems(topics)
    yield metrics.STOPPED_SUBSCRIPTIONS, (), sum(s.is_stopped for s in subscriptions)
    yield metrics.BLOCKED_SUBSCRIPTIONS, (), sum(s.is_blocked for s in subscriptions)


def _problems(topics: Sequence[Topic]) -> Iterator[Sample]:
    """Yield a sample for each subscription with a problem; the rest are one sample."""
    others: Counter[str] = Counter()
    for at, (topic, each, kind) in enumerate(problems_of(topics)):
        if at < metrics.SERIES_MAX:
            labels = (str(topic.name), str(each.name), kind.value)
            yield metrics.SUBSCRIPTION_PROBLEM, labels, 1
        else:
            others[kind.value] += 1
    for name, count in others.items():
        labels = (metrics.OTHER, metrics.OTHER, name)
        yield metrics.SUBSCRIPTION_PROBLEM, labels, count


def _of_topics(broker: Broker, series: TopicSeries) -> Iterator[Sample]:
    """Yield samples for each of the first topics, and for all others together."""
    now_us = time.time_ns() // 1000
    topics, pattern = iter(broker.topics.opened.values()), series.pattern
    if pattern is not None:
        topics = iter([each for each in topics if pattern.matches(each.name)])
    for topic in islice(topics, series.series_max):
        yield from _of_topic(topic, series.series_max, now_us)
    if others := list(topics):
        yield from _of_counts(others, metrics.OTHER)
        subscriptions = [(t, s) for t in others for s in t.subscriptions.values()]
        yield from _of_other_subscriptions(subscriptions, now_us)


def _of_topic(topic: Topic, series_max: int, now_us: int) -> Iterator[Sample]:
    name = str(topic.name)
    yield from _of_counts([topic], name)
    subscriptions = iter(topic.subscriptions.values())
    for subscription in islice(subscriptions, series_max):
        labels, counts = (name, str(subscription.name)), subscription.counts
        yield metrics.SUBSCRIPTION_MESSAGES_SKIPPED, labels, counts.skipped
        dead_lettered = counts.dead_lettered
        yield metrics.SUBSCRIPTION_MESSAGES_DEAD_LETTERED, labels, dead_lettered
        yield metrics.BACKLOG, labels, subscription.backlog(topic.end_offset)
        yield metrics.LAG_SECONDS, labels, subscription.lag_s(now_us)
    yield from _of_other_subscriptions([(topic, s) for s in subscriptions], now_us)


def _of_other_subscriptions(
    others: Sequence[tuple[Topic, Subscription]], now_us: int
) -> Iterator[Sample]:
    """Yield samples of the subscriptions that have no series of their own."""
    if others:
        labels = (metrics.OTHER, metrics.OTHER)
        counts = [each.counts for _, each in others]
        skipped = sum(each.skipped for each in counts)
        yield metrics.SUBSCRIPTION_MESSAGES_SKIPPED, labels, skipped
        dead_lettered = sum(each.dead_lettered for each in counts)
        yield metrics.SUBSCRIPTION_MESSAGES_DEAD_LETTERED, labels, dead_lettered
        backlog = sum(each.backlog(topic.end_offset) for topic, each in others)
        yield metrics.BACKLOG, labels, backlog
        lag_s = max(each.lag_s(now_us) for _, each in others)
        yield metrics.LAG_SECONDS, labels, lag_s


def _of_counts(topics: Sequence[Topic], name: str) -> Iterator[Sample]:
    """Yield the counts of *topics* together, under *name*."""
    labels = (name,)
    counts = [topic.counts for topic in topics]
    yield metrics.TOPIC_MESSAGES_IN, labels, sum(each.published for each in counts)
    yield metrics.TOPIC_BYTES_IN, labels, sum(each.published_bytes for each in counts)
    yield metrics.TOPIC_MESSAGES_OUT, labels, sum(each.delivered for each in counts)
    yield metrics.TOPIC_BYTES_OUT, labels, sum(each.delivered_bytes for each in counts)
    yield metrics.TOPIC_MESSAGES_NACKED, labels, sum(each.nacked for each in counts)
    dead_lettered = sum(each.dead_lettered for each in counts)
    yield metrics.TOPIC_MESSAGES_DEAD_LETTERED, labels, dead_lettered
    for topic in topics:
        if topic.schema_counts is not None:
            for policy, count in topic.schema_counts.validated.items():
                yield metrics.SCHEMA_VALIDATIONS, (name, policy), count
            for reason, count in topic.schema_counts.failed.items():
                yield metrics.SCHEMA_VALIDATION_FAILURES, (name, reason), count


def _of_storage(broker: Broker) -> Iterator[Sample]:
    storage = broker.storage
    journal, memory, sealer = storage.journal, storage.memory, storage.sealer
    logs = storage.logs.values()
    tail_bytes = sum(each.tail.byte_count for each in memory.unsealed.values())
    yield metrics.TAIL_BYTES, (), tail_bytes
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
    yield metrics.SEGMENTS, (), sum(len(each.segments) for each in logs)
    yield metrics.SEGMENT_BYTES, (), sum(each.segment_bytes for each in logs)
    yield metrics.CORRUPT_SEGMENTS, (), storage.corrupt_segment_count
    yield metrics.SEALING_SECONDS, (), sealer.sealing_seconds
    yield metrics.SEALING_FAILURES, (), sealer.failure_count
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
    yield metrics.CLUSTER_SESSION_TTL, (), lease.ttl_s
    yield metrics.CLUSTER_SESSION_MARGIN, (), lease.least_margin_s
    yield metrics.CLUSTER_SESSION_NEAR_LOSSES, (), lease.margin.near_losses
    yield metrics.CLUSTER_LOOP_GAP, (), lease.longest_gap_s
