"""
The metrics of a broker: name, kind, help, unit and labels.

The broker counts in plain integers, and reports ``Sample``s of these metrics on
request.  Only the HTTP server knows Prometheus' format.  Names follow the conventions
of Prometheus: counters end in ``_total``, bytes and seconds are part of the name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any

from pydanube.model.histograms import Histogram
from pydanube.model.lazy_dataclasses import dataclass

SERIES_MAX = 1000
"""The default maximum number of series of a metric; about 100 KB in a scrape."""

OTHER = "(other)"
"""The label value of the series that stands for all series beyond the maximum."""


class MetricKind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    """It only increases, from 0 when the broker starts."""
    GAUGE = "gauge"
    """It increases and decreases."""
    HISTOGRAM = "histogram"
    """The number of events by duration, in buckets that only increase."""


# Each is declared once, and is a key of dictionaries very often.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """A metric of a broker."""

    name: str
    kind: MetricKind
    help: str
    unit: str
    labels: tuple[str, ...] = ()
    adds_up: bool = True
    """Whether the value of several series is their sum; otherwise their maximum."""


Value = float | Histogram
"""The value of a metric; a ``Histogram`` if it is one."""

Sample = tuple[Metric, tuple[str, ...], Value]
"""A metric, the values of its labels, and its current value."""


class Declarations:
    """The functions that declare metrics and add them to *metrics*, with *labels*."""

    def __init__(self, metrics: list[Metric], *labels: str) -> None:
        self._metrics = metrics
        self._labels = labels
        self.counter = partial(self._declare, MetricKind.COUNTER)
        self.gauge = partial(self._declare, MetricKind.GAUGE)
        self.histogram = partial(self._declare, MetricKind.HISTOGRAM)

    def _declare(
        self,
        kind: MetricKind,
        name: str,
        unit: str,
        help_text: str,
        *labels: str,
        adds_up: bool = True,
    ) -> Metric:
        metric = Metric(
            name=name,
            kind=kind,
            help=help_text,
            unit=unit,
            labels=(*self._labels, *labels),
            adds_up=adds_up,
        )
        self._metrics.append(metric)
        return metric


METRICS: list[Metric] = []
"""Every metric of the broker itself, in the order of declaration."""

_declare = Declarations(METRICS)
_counter, _gauge, _histogram = _declare.counter, _declare.gauge, _declare.histogram

# The broker.

BUILD_INFO = _gauge(
    "danube_build_info", "", "Always 1; the label is the version.", "version"
)
READY = _gauge("danube_ready", "", "1 while the broker serves topics, otherwise 0.")
PROCESSES = _gauge(
    "danube_processes",
    "",
    "The processes of the broker, if they are several; all other metrics then have the "
    "label process.",
)
PROCESSES_READY = _gauge(
    "danube_processes_ready", "", "The processes of the broker that serve topics."
)
ERRORS = _counter(
    "danube_errors_total",
    "errors",
    "Requests and channels that were answered with an error, by its code.",
    "code",
)

REQUEST_SECONDS = _histogram(
    "danube_request_seconds",
    "seconds",
    "Time from a request until its answer: operations of the native protocol, such as "
    "lookup, and methods of the gRPC servers without streams. Operations and methods "
    "that nobody has called are missing.",
    "request",
)

# Connections.

CONNECTIONS = _gauge(
    "danube_connections", "connections", "Open connections of the native protocol."
)
CONNECTIONS_OPENED = _counter(
    "danube_connections_opened_total",
    "connections",
    "Connections of the native protocol that were accepted.",
)
CONNECTIONS_REFUSED = _counter(
    "danube_connections_refused_total",
    "connections",
    "Connections of the native protocol that were closed because there were too many.",
)
CONNECTIONS_TIMED_OUT = _counter(
    "danube_connections_timed_out_total",
    "connections",
    "Connections of the native protocol that were closed because the client was silent "
    "or sent half a frame.",
)
BATCHES_DECOMPRESSED = _counter(
    "danube_batches_decompressed_total",
    "batches",
    "Batches that were decompressed for clients that do not know their codec, such as "
    "the Python client without the extra fast. A batch that several of them receive at "
    "about the same time counts once.",
)
BATCHES_DECOMPRESSED_BYTES = _counter(
    "danube_batches_decompressed_bytes_total",
    "bytes",
    "The bytes of these batches after decompression.",
)
AUDIT_RECORDS = _counter(
    "danube_audit_records_total",
    "records",
    "Records of the audit log, without those that were dropped.",
)
AUDIT_DROPPED = _counter(
    "danube_audit_dropped_total",
    "records",
    "Records of the audit log that were dropped because too many waited.",
)
AUDIT_FAILED = _counter(
    "danube_audit_failed_total",
    "records",
    "Records that the file or the topic of the audit log could not take; a record that "
    "neither took counts twice.",
)
AUDIT_SUPPRESSED = _counter(
    "danube_audit_suppressed_total",
    "records",
    "Refusals that were only counted in the audit log, because a client or all clients "
    "together caused too many.",
)
AUTHENTICATION_FAILURES = _counter(
    "danube_authentication_failures_total",
    "attempts",
    "Attempts to authenticate that failed, by the kind of credentials: api_key, token, "
    "certificate, none, or limited if the address had failed too often.",
    "method",
)
QUOTA_THROTTLED_SECONDS = _counter(
    "danube_quota_throttled_seconds_total",
    "seconds",
    "How long clients have waited because of quotas, by the kind of target and the "
    "limit.",
    "scope",
    "limit",
)
QUOTA_REFUSALS = _counter(
    "danube_quota_refusals_total",
    "requests",
    "Requests that quotas have refused, by the kind of target and the limit.",
    "scope",
    "limit",
)
STORED_CONNECTORS = _gauge(
    "danube_stored_connectors",
    "connectors",
    "Stored connectors, by their health: healthy, paused, retrying, degraded, failed, "
    "unassigned or outdated. Each broker and process has the same numbers.",
    "health",
)
RECEIVE_BYTES = _gauge(
    "danube_receive_bytes",
    "bytes",
    "Memory of partly received frames of the native protocol.",
)
LISTENER_CONNECTIONS = _gauge(
    "danube_listener_connections",
    "connections",
    "Open connections of the other listeners: grpc, admin, http or mqtt.",
    "listener",
)
LISTENER_CONNECTIONS_REFUSED = _counter(
    "danube_listener_connections_refused_total",
    "connections",
    "Connections of these listeners that were closed because there were too many.",
    "listener",
)
LISTENER_CONNECTIONS_TIMED_OUT = _counter(
    "danube_listener_connections_timed_out_total",
    "connections",
    "Connections of these listeners that were closed because the peer was silent or "
    "did not complete a request in time.",
    "listener",
)
LISTENER_CONNECTIONS_BROKEN = _counter(
    "danube_listener_connections_broken_total",
    "connections",
    "Connections of these listeners that were closed because the peer violated the "
    "protocol, sent too many useless frames, or used too much memory.",
    "listener",
)
PRODUCERS = _gauge("danube_producers", "producers", "Open producers.")
CONSUMERS = _gauge("danube_consumers", "consumers", "Open consumers.")
TOPICS = _gauge("danube_topics", "topics", "Topics that this broker serves.")
TOPIC_FAILURES = _counter(
    "danube_topic_failures_total",
    "failures",
    "Unexpected errors while a topic was opened or closed, or while a change of its "
    "record was applied.  The log has them.",
)
DAMAGED_RECORDS = _gauge(
    "danube_metadata_damaged_records",
    "records",
    "Records of the metadata store that this broker could not decode when it read them "
    "last.",
)
SUBSCRIPTIONS = _gauge(
    "danube_subscriptions", "subscriptions", "Subscriptions of these topics."
)

# Messages in and out.

PUBLISH_SECONDS = _histogram(
    "danube_publish_seconds",
    "seconds",
    "Time from the arrival of a batch of the native protocol until its receipt, "
    "including the time that a publish rate or full memory made it wait.",
)
DELIVERY_AGE_SECONDS = _histogram(
    "danube_delivery_age_seconds",
    "seconds",
    "Age of messages at their first delivery to a consumer, since the publish time of "
    "the first message of their batch, by the clocks of producer and broker.",
)
MESSAGES_IN = _counter(
    "danube_messages_in_total",
    "messages",
    "Messages that were published, and stored if the topic is reliable.",
)
BYTES_IN = _counter(
    "danube_in_bytes_total", "bytes", "Bytes of the batches that were published."
)
MESSAGES_OUT = _counter(
    "danube_messages_out_total",
    "messages",
    "Messages that were delivered or fetched, including repeated deliveries.",
)
BYTES_OUT = _counter(
    "danube_out_bytes_total",
    "bytes",
    "Bytes of the batches that were delivered or fetched.",
)
TOPIC_MESSAGES_IN = _counter(
    "danube_topic_messages_in_total",
    "messages",
    "Messages that were published to the topic.",
    "topic",
)
TOPIC_BYTES_IN = _counter(
    "danube_topic_in_bytes_total",
    "bytes",
    "Bytes of the batches that were published to the topic.",
    "topic",
)
TOPIC_MESSAGES_OUT = _counter(
    "danube_topic_messages_out_total",
    "messages",
    "Messages of the topic that were delivered or fetched, including repeats.",
    "topic",
)
TOPIC_BYTES_OUT = _counter(
    "danube_topic_out_bytes_total",
    "bytes",
    "Bytes of the topic's batches that were delivered or fetched.",
    "topic",
)
TOPIC_MESSAGES_NACKED = _counter(
    "danube_topic_messages_nacked_total",
    "messages",
    "Nacks of messages of the topic by consumers.",
    "topic",
)
TOPIC_MESSAGES_DEAD_LETTERED = _counter(
    "danube_topic_messages_dead_lettered_total",
    "messages",
    "Messages of the topic that were copied to a dead-letter topic.",
    "topic",
)
MESSAGES_DROPPED = _counter(
    "danube_messages_dropped_total",
    "messages",
    "Messages of non-reliable topics that slow consumers missed.",
)
MESSAGES_REDELIVERED = _counter(
    "danube_messages_redelivered_total",
    "messages",
    "Messages that were delivered again after a nack, a timeout or a lost consumer.",
)

MESSAGES_NACKED = _counter(
    "danube_messages_nacked_total",
    "messages",
    "Nacks of messages by consumers.",
)
ACK_TIMEOUTS = _counter(
    "danube_ack_timeouts_total",
    "messages",
    "Messages that a consumer did not acknowledge in time, including repeats.",
)
MESSAGES_EXPIRED = _counter(
    "danube_messages_expired_total",
    "messages",
    "Messages that expired before a subscription had delivered them.",
)
MESSAGES_DEAD_LETTERED = _counter(
    "danube_messages_dead_lettered_total",
    "messages",
    "Messages that were copied to a dead-letter topic.",
)
DEAD_LETTER_FAILURES = _counter(
    "danube_dead_letter_failures_total",
    "attempts",
    "Failed attempts to copy messages to a dead-letter topic, which are retried.",
)
MESSAGES_GIVEN_UP = _counter(
    "danube_messages_given_up_total",
    "messages",
    "Messages that failed too often and were dropped by the failure policy.",
)

SCHEMA_VALIDATIONS = _counter(
    "danube_schema_validation_total",
    "messages",
    "Messages of the topic that were checked against its schema.",
    "topic",
    "policy",
)
SCHEMA_VALIDATION_FAILURES = _counter(
    "danube_schema_validation_failures_total",
    "messages",
    "Messages that did not match the schema, by reason.",
    "topic",
    "reason",
)

MESSAGES_SKIPPED = _counter(
    "danube_messages_skipped_total",
    "messages",
    "Messages that subscriptions skipped because their segment is unreadable.",
)
STOPPED_SUBSCRIPTIONS = _gauge(
    "danube_stopped_subscriptions",
    "subscriptions",
    "Subscriptions that wait at an unreadable segment.",
)

SUBSCRIPTION_MESSAGES_SKIPPED = _counter(
    "danube_subscription_messages_skipped_total",
    "messages",
    "Messages that the subscription skipped because their segment is unreadable.",
    "topic",
    "subscription",
)
SUBSCRIPTION_MESSAGES_DEAD_LETTERED = _counter(
    "danube_subscription_messages_dead_lettered_total",
    "messages",
    "Messages of the subscription that were copied to its dead-letter topic.",
    "topic",
    "subscription",
)
SUBSCRIPTION_PROBLEM = _gauge(
    "danube_subscription_problem",
    "problems",
    "1 for each subscription that a finding calls a problem, by its kind.",
    "topic",
    "subscription",
    "kind",
)

# Backlog.

BLOCKED_SUBSCRIPTIONS = _gauge(
    "danube_blocked_subscriptions",
    "subscriptions",
    "Subscriptions that deliver no new messages (of a key) because a message failed "
    "too often.",
)

BACKLOG = _gauge(
    "danube_subscription_backlog_messages",
    "messages",
    "Messages of the topic that the subscription has not acknowledged.",
    "topic",
    "subscription",
)
LAG_SECONDS = _gauge(
    "danube_subscription_lag_seconds",
    "seconds",
    "Age of the oldest message of the topic that the subscription has not "
    "acknowledged, approximately; 0 if there is none. The series (other) has the "
    "maximum of the rest.",
    "topic",
    "subscription",
    adds_up=False,
)

# Storage.

TAIL_BYTES = _gauge(
    "danube_tail_bytes", "bytes", "Messages in memory that are not sealed yet."
)
TAIL_MEMORY_BYTES = _gauge(
    "danube_tail_memory_bytes",
    "bytes",
    "The same messages as counted for storage.tail_bytes_max: decompressed, plus 16 "
    "bytes for each and 600 for each batch.",
)
FAILING_TOPICS = _gauge(
    "danube_sealing_failing_topics",
    "topics",
    "Topics whose last sealing failed; /readyz and the log name them.",
)
JOURNAL_BYTES = _gauge("danube_journal_bytes", "bytes", "Size of all journal files.")
JOURNAL_FILES = _gauge("danube_journal_files", "files", "Journal files.")
JOURNAL_PENDING_BYTES = _gauge(
    "danube_journal_pending_bytes",
    "bytes",
    "Entries of the journal that are not committed yet.",
)
JOURNAL_SYNCS = _counter(
    "danube_journal_syncs_total",
    "syncs",
    "Commits that were synced to disk.",
)
JOURNAL_COMMIT_SECONDS = _histogram(
    "danube_journal_commit_seconds",
    "seconds",
    "Time of each commit, which writes a group of entries to the journal.",
)
JOURNAL_FAILURES = _counter(
    "danube_journal_failures_total",
    "requests",
    "Failed requests of a journal to its object store, which are repeated.",
)
STAGED_PARTS = _gauge(
    "danube_staged_parts", "parts", "Parts that are staged and not committed yet."
)
STAGED_BYTES = _gauge(
    "danube_staged_bytes",
    "bytes",
    "Disk space of staged parts, including those that are being committed.",
)
STAGED_COMMITS = _counter(
    "danube_staged_commits_total",
    "commits",
    "Versions of staged batches that were committed.",
)
STAGED_MESSAGES = _counter(
    "danube_staged_messages_total", "messages", "Messages of these versions."
)
STAGED_COMMITS_UNDONE = _gauge(
    "danube_staged_commits_undone",
    "commits",
    "Commits whose messages are not all in their topics yet; if this lasts, the log "
    "shows the error.",
)
STAGED_PARTS_EXPIRED = _counter(
    "danube_staged_parts_expired_total",
    "parts",
    "Parts that expired without being committed.",
)
STAGED_MESSAGES_DROPPED = _counter(
    "danube_staged_messages_dropped_total",
    "messages",
    "Messages of committed versions whose topic was deleted before.",
)
SEGMENTS = _gauge("danube_segments", "segments", "Sealed segments of these topics.")
SEGMENT_BYTES = _gauge(
    "danube_segment_bytes", "bytes", "Size of the sealed segments of these topics."
)
CORRUPT_SEGMENTS = _gauge(
    "danube_corrupt_segments",
    "segments",
    "Segments of these topics that are damaged, missing or unreadable.",
)
SEALING_SECONDS = _histogram(
    "danube_sealing_seconds",
    "seconds",
    "Time of each sealing, which writes a segment and records it in the manifest.",
)
DISK_FULL = _gauge(
    "danube_disk_full",
    "flag",
    "1 while publishing and staging fail, because the disk is full, or the space for "
    "segments that are not uploaded; otherwise 0.",
)
LOCAL_SEGMENT_BYTES = _gauge(
    "danube_local_segment_bytes",
    "bytes",
    "Size of the segments on the local disk. This metric and the next ones exist if "
    "there is a remote object store.",
)
UPLOAD_BACKLOG = _gauge(
    "danube_upload_backlog_segments", "segments", "Segments that are not uploaded yet."
)
UPLOAD_BACKLOG_BYTES = _gauge(
    "danube_upload_backlog_bytes", "bytes", "Size of these segments."
)
UPLOAD_BACKLOG_AGE = _gauge(
    "danube_upload_backlog_age_seconds",
    "seconds",
    "Time since the oldest of these segments was sealed.",
)
UPLOAD_SECONDS = _histogram(
    "danube_upload_seconds",
    "seconds",
    "Time of each upload of a segment, until the store's copy is verified.",
)
UPLOADED_BYTES = _counter(
    "danube_uploaded_bytes_total",
    "bytes",
    "Bytes that were sent to the remote object store, including repeated uploads.",
)
UPLOAD_FAILURES = _counter(
    "danube_upload_failures_total",
    "attempts",
    "Failed attempts to upload a segment, which are retried.",
)
REMOTE_READS = _counter(
    "danube_remote_reads_total",
    "requests",
    "Requests for parts of segments that are only in the remote object store.",
)
REMOTE_READ_BYTES = _counter(
    "danube_remote_read_bytes_total", "bytes", "Bytes that the store has sent."
)
REMOTE_READ_FAILURES = _counter(
    "danube_remote_read_failures_total",
    "requests",
    "Such requests that failed; readers wait and try again.",
)
READ_CACHE_BYTES = _gauge(
    "danube_read_cache_bytes",
    "bytes",
    "Size of the parts of remote segments that are cached on the local disk.",
)
READ_CACHE_HITS = _counter(
    "danube_read_cache_hits_total",
    "reads",
    "Reads of remote segments that the cache on the local disk has served.",
)
EVICTIONS = _counter(
    "danube_evictions_total",
    "segments",
    "Local copies of uploaded segments that were removed.",
)
SEALING_FAILURES = _counter(
    "danube_sealing_failures_total",
    "attempts",
    "Failed attempts to seal, which are retried.",
)
SEGMENTS_MERGED = _counter(
    "danube_segments_merged_total",
    "segments",
    "Small segments that the broker has replaced by merged ones while it was idle.",
)

# Clusters: these metrics exist if the broker is in one.

CLUSTER_SHARDS = _gauge(
    "danube_cluster_shards", "shards", "Shards that the broker serves."
)
CLUSTER_CLAIMS = _counter(
    "danube_cluster_claims_total", "shards", "Shards that the broker has claimed."
)
CLUSTER_SHARDS_SERVED = _counter(
    "danube_cluster_shards_served_total",
    "shards",
    "Shards that the broker has taken over and begun to serve.",
)
CLUSTER_TAKEOVERS = _counter(
    "danube_cluster_takeovers_total",
    "takeovers",
    "Takeovers, each of all shards that the broker takes over at the same time.",
)
CLUSTER_TAKEOVER_SECONDS = _counter(
    "danube_cluster_takeover_seconds_total",
    "seconds",
    "Time from the first claim of each takeover until its last shard was served.",
)
CLUSTER_TAKEOVER_FAILURES = _counter(
    "danube_cluster_takeover_failures_total",
    "attempts",
    "Failed steps of takeovers and moves, which are retried.",
)
CLUSTER_MOVES = _counter(
    "danube_cluster_moves_total",
    "shards",
    "Shards that the broker has released, so that another broker takes them over.",
)
CLUSTER_LOST_TOPICS = _counter(
    "danube_cluster_lost_topics_total",
    "topics",
    "Topics that the broker serves without a journal that was given up by request.",
)
CLUSTER_LOST_SESSIONS = _counter(
    "danube_cluster_lost_sessions_total",
    "sessions",
    "Sessions of other brokers that ended while they owned shards, which this broker "
    "then took over.",
)
CLUSTER_SESSION_TTL = _gauge(
    "danube_cluster_session_ttl_seconds",
    "seconds",
    "The time without an answered keepalive after which the broker's session ends.",
)
CLUSTER_SESSION_MARGIN = _gauge(
    "danube_cluster_session_margin_seconds",
    "seconds",
    "The least time that was left of the broker's session when a keepalive was "
    "answered, in the last one or two minutes.",
)
CLUSTER_SESSION_NEAR_LOSSES = _counter(
    "danube_cluster_session_near_losses_total",
    "keepalives",
    "Keepalives that were answered when less than a quarter of the session's TTL was "
    "left.",
)
CLUSTER_LOOP_GAP = _gauge(
    "danube_cluster_loop_gap_seconds",
    "seconds",
    "The longest time for which the broker's event loop did not go round, in the last "
    "one or two minutes. A broker with more than a quarter of the TTL gets fewer "
    "shards.",
)


class BoundedSeries:
    """
    Samples by metric and label values; values of equal labels are combined.

    Bounds: A metric has at most *series_max* series, and one more with the label values
    ``(other)``, which combines the rest.  Counters stay monotonic if the samples come
    in a stable order, such as that of creation.
    """

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self.series: dict[Metric, dict[tuple[str, ...], Value]] = defaultdict(dict)
        self._series_max = series_max

    def add(self, sample: Sample) -> None:
        """Add *sample*."""
        metric, labels, value = sample
        assert len(labels) == len(metric.labels), metric.name
        series = self.series[metric]
        if labels not in series and len(series) >= self._series_max:
            labels = (OTHER,) * len(labels)
        known = series.get(labels)
        series[labels] = value if known is None else _combine(metric, known, value)


def bound_series(
    samples: Iterable[Sample], *, series_max: int = SERIES_MAX
) -> dict[Metric, dict[tuple[str, ...], Value]]:
    """Return all *samples* as ``BoundedSeries`` has them."""
    bounded = BoundedSeries(series_max)
    for sample in samples:
        bounded.add(sample)
    return dict(bounded.series)


def _combine(metric: Metric, one: Any, other: Any) -> Value:
    combined: Value = one + other if metric.adds_up else max(one, other)
    return combined
