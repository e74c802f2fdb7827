"""
The tests that cannot hold in a world, and why.

This is the only place that says so.  The reasons that concern users are rows of
``docs/guide/cluster-differences.md``, in the same words; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

INSIDE = "The test looks inside of a broker, or of its only connection"
"""There are several, or others after a restart; such a test is not about clients."""
MOMENTS = "The test depends on the moment at which frames arrive or the broker counts"
PROCESSES = "The test starts processes, which no world reaches"
ALONE = "The test is about a broker that is in no cluster"
GRPC_CLIENTS = (
    "The test is of single calls, and its producers and consumers are not opened again"
)
"""Published clients look up brokers and register again by themselves."""
OWN_POLICY = "The test is about a broker without security, or has a policy of its own"

AGAIN = "Messages that were delivered and not acknowledged are delivered again"
ORDER = "Several topics, consumers and producers have another order among each other"
LEFT = "Producers and consumers are away while they connect again"
LOST = "Non-reliable messages, requests and replies that are on their way are lost"
TRANSACTIONS = "A transaction that is not decided fails, and is begun again"
ONE_BROKER = "A transaction acknowledges messages of topics that one broker serves"
EPOCH = "The epoch of a topic rises whenever a broker opens the topic"
COUNTS = (
    "Counts of messages of a subscription begin again when a broker opens the topic"
)
UNREPEATED = (
    "Requests that change something and may not be repeated fail while a topic moves"
)
REMOTE = "The history is in a store that all brokers share"
OTHERS = (
    "Lists, and errors about what does not exist, show only what the client may see"
)
COMPRESSION = "The test compresses batches, which a client without Arrow refuses"
MALFORMED = "Malformed names of a gRPC call are refused before the method sees them"

EXAMPLE = " for "
"""Comes before the only example of a test that cannot hold."""

_ADMIN = "scenarios/test_admin_transcripts.py::test_admin_server_answers_as_written"
_DANUBE = "scenarios/test_client_transcripts.py::test_danube_server_answers_as_written"
_EXAMPLES = (
    f"docs/test_examples.py::test_the_examples_of_a_page_run{EXAMPLE}docs/guide/"
)
_REPLICATION = "packages/pydanube-connect/tests/replication/test_"
_CLIENT = "packages/pydanube/tests/client/test_"
_BELOW = "packages/pydanube/tests/client/*/test_"
_INSIDE = (
    f"{_CLIENT}client.py::test_connecting_*",
    f"{_CLIENT}client.py::test_requests_are_repeated_for_the_time_that_the_caller_*",
    f"{_CLIENT}client.py::test_requests_that_must_not_be_repeated_wait_for_a_*",
    f"{_BELOW}connection.py::*",
    f"{_BELOW}consumer.py::test_*corrupt_segment*",
    f"{_BELOW}consumer.py::test_a_seek_waits_until_*",
    f"{_BELOW}consumer.py::test_message_from_before_the_connection_broke_*",
    f"{_BELOW}consumer.py::test_messages_acknowledged_before_a_seek_*",
    f"{_CLIENT}counters.py::test_life_of_a_connection_is_logged_and_reported",
    f"{_CLIENT}counters.py::test_log_has_no_credentials",
    f"{_CLIENT}counters.py::test_outage_is_logged_once",
    f"{_BELOW}messages.py::test_a_message_extends_its_ack_timeout",
    f"{_BELOW}partitioned_consumer.py::test_broken_connection_loses_no_messages",
    f"{_BELOW}partitioned_consumer.py::test_corrupt_segment_*",
    f"{_BELOW}partitioned_producer.py::test_producers_continue_after_a_broken_*",
    f"{_BELOW}producer.py::test_the_holder_keeps_its_access_before_a_standby_*",
    f"{_BELOW}reader.py::test_corrupt_segment_is_an_error_that_names_it",
    f"{_BELOW}reader.py::test_messages_of_a_repeated_request_are_read_once",
    f"{_BELOW}reader.py::test_prefetch_is_bounded_in_bytes",
    f"{_BELOW}reader.py::test_reader_requests_more_while_*",
    f"{_BELOW}reader.py::test_reader_that_stops_cancels_the_request_that_is_ahead",
    f"{_BELOW}reader.py::test_closed_reader_of_partitions_leaves_no_task",
    f"{_BELOW}staging.py::test_part_that_the_broker_has_lost_fails",
    f"{_BELOW}staging.py::test_payloads_are_checked_against_the_named_schema",
    f"{_BELOW}topics.py::test_dry_run_assumes_the_retention_of_the_namespace",
    f"{_BELOW}topics.py::test_retention_*",
    f"{_BELOW}topics.py::test_topic_is_trimmed_and_its_consumers_go_on",
    f"{_BELOW}transactions.py::test_commit_is_repeated_when_its_answer_is_lost",
)
_MOMENTS = (
    f"{_EXAMPLES}delays.md",
    f"{_BELOW}partitioned_consumer.py::test_batch_is_of_one_partition_*",
    f"{_BELOW}partitioned_consumer.py::test_partitions_are_served_round_robin",
    f"{_BELOW}security.py::test_quota_is_listed_until_it_is_removed",
)
_PROCESSES = (
    f"{_EXAMPLES}request-reply.md",
    f"{_EXAMPLES}admin.md",
    f"{_EXAMPLES}schemas.md",
    f"{_EXAMPLES}lakehouse.md",
    f"{_EXAMPLES}iceberg-catalog.md",
    f"{_EXAMPLES}maintenance.md",
    f"{_EXAMPLES}backup.md",
    f"{_EXAMPLES}authorization.md",
    "e2e/test_cli.py::test_a_second_consumer_of_an_exclusive_subscription_*",
    "e2e/test_cli.py::test_a_topic_is_copied_by_a_pipe",
    "e2e/test_cli.py::test_an_interrupted_*",
    "e2e/test_cli.py::test_consumer_ends_when_its_reader_closes_the_pipe",
    "e2e/test_cli.py::test_error_names_the_port_that_is_in_use",
    "e2e/test_cli.py::test_shared_subscription_divides_messages",
    "e2e/test_cli_messages.py::test_exclusive_producer_refuses_others",
    "e2e/test_cli_reading.py::test_commands_end_quietly_when_their_reader_*",
    "e2e/test_cli_reading.py::test_following_prints_new_messages_*",
)
_FAILURES: dict[str, tuple[str, ...]] = {
    INSIDE: _INSIDE,
    MOMENTS: _MOMENTS,
    PROCESSES: _PROCESSES,
    AGAIN: (
        f"{_BELOW}consumer.py::test_unacknowledged_messages_are_redelivered_*",
        f"{_BELOW}messages.py::test_a_message_acknowledges_itself_*",
        f"{_BELOW}messages.py::test_a_rejected_message_keeps_its_delay_and_*",
        f"{_BELOW}partitioned_consumer.py::test_messages_of_several_partitions_are_*",
        f"{_BELOW}producer.py::test_delayed_message_is_delivered_at_its_time_*",
        f"{_ADMIN}{EXAMPLE}failure_policies",
        f"{_EXAMPLES}failures.md",
        "e2e/test_cli_messages.py::test_dead_letters_are_replayed_and_dropped",
        f"{_CLIENT}counters.py::test_messages_are_counted_by_what_happened_to_them",
        f"{_BELOW}consumer.py::test_nack_may_delay_redelivery",
        f"{_BELOW}consumer.py::test_prefetch_limits_deliveries",
        f"{_BELOW}dead_letters.py::test_dead_letter_has_the_message_and_its_failure",
        f"{_BELOW}dead_letters.py::test_letter_of_a_second_failure_*",
        f"{_BELOW}messages.py::test_released_messages_go_to_another_consumer",
        f"{_BELOW}multi_topic_consumer.py::test_topic_of_a_pattern_leaves_when_*",
        f"{_BELOW}multi_topic_consumer.py::test_topic_that_cannot_be_consumed_*",
        f"{_BELOW}unread_deliveries.py::test_message_that_another_consumer_got_*",
        f"{_BELOW}unread_deliveries.py::test_rest_of_a_batch_is_not_handed_out_*",
        f"{_BELOW}unread_deliveries.py::test_credit_of_messages_that_came_too_late_*",
        f"{_BELOW}unread_deliveries.py::test_consumer_follows_a_changed_ack_timeout",
        f"{_BELOW}subscriptions.py::test_mark_done_of_the_blocking_message_*",
        f"{_BELOW}subscriptions.py::test_acks_from_before_a_subscription_moved_*",
        f"{_BELOW}subscriptions.py::test_subscription_is_moved_without_a_consumer",
        f"{_BELOW}workers.py::test_a_failed_message_is_delivered_again",
        f"{_BELOW}workers.py::test_messages_of_a_stopped_worker_go_to_others",
        f"{_BELOW}partitioned_consumer.py::test_consumer_with_the_smallest_prefetch_*",
        f"{_BELOW}partitioned_consumer.py::test_messages_of_all_partitions_*",
        f"{_BELOW}partitioned_consumer.py::test_seek_moves_all_partitions_but_*",
    ),
    ORDER: (
        f"{_BELOW}consumer.py::test_consumers_with_a_lower_priority_number_*",
        f"{_BELOW}consumer.py::test_messages_with_gaps_are_acknowledged_individually",
        f"{_BELOW}consumer.py::test_replaced_active_consumer_stays_active",
        f"{_BELOW}consumer.py::test_shared_subscription_divides_messages_about_*",
        f"{_BELOW}consumer.py::test_standby_is_promoted_when_*",
        f"{_BELOW}partitioned_consumer.py::test_consumers_share_partitions",
        f"{_BELOW}producer.py::test_more_producers_may_wait_*",
    ),
    GRPC_CLIENTS: (_DANUBE,),
    LEFT: (
        "e2e/test_admin_cli.py::test_connections_are_listed_and_closed",
        f"{_CLIENT}blocking.py::test_a_generator_that_is_never_finished_*",
        f"{_CLIENT}blocking.py::test_calls_that_wait_in_other_threads_*",
        f"{_BELOW}consumer.py::test_exclusive_subscription_refuses_a_second_*",
        f"{_BELOW}consumer.py::test_consumer_gets_only_keys_that_match_*",
        f"{_BELOW}multi_topic_consumer.py::test_pattern_selects_topics_and_*",
        f"{_BELOW}partitioned_consumer.py::test_failed_partition_fails_the_consumer_*",
        f"{_BELOW}producer.py::test_cancelled_exclusive_wait_leaves_no_*",
        f"{_BELOW}workers.py::test_workers_fail_with_their_consumer",
        f"{_ADMIN}{EXAMPLE}schemas",
        f"{_ADMIN}{EXAMPLE}subscriptions",
        f"{_CLIENT}client.py::test_topic_in_use_is_deleted_only_by_force",
        f"{_BELOW}consumer.py::test_ack_of_a_message_from_before_a_seek_is_refused",
        f"{_BELOW}consumer.py::test_seek_moves_the_subscription",
        f"{_BELOW}namespaces.py::test_exceeded_producer_limit_is_reported",
        f"{_BELOW}consumer.py::test_all_messages_of_a_key_go_to_one_consumer_*",
        f"{_BELOW}consumer.py::test_newer_consumer_of_the_same_name_replaces_*",
        f"{_BELOW}partitioned_producer.py::test_exclusive_producer_excludes_others_*",
        f"{_BELOW}producer.py::test_exclusive_producer_is_refused_while_*",
        f"{_BELOW}partitioned_consumer.py::test_second_consumer_of_an_exclusive_*",
        f"{_BELOW}partitioned_producer.py::test_names_of_consumers_and_producers_*",
    ),
    LOST: (
        f"{_BELOW}request_reply.py::*",
        f"{_BELOW}consumer.py::test_*non_reliable_topic_*",
    ),
    TRANSACTIONS: (
        f"{_BELOW}transactions.py::test_refused_commit_leaves_no_part",
        f"{_BELOW}transactions.py::test_transaction_spans_partitions_and_*",
        f"{_EXAMPLES}exactly-once.md",
        f"{_BELOW}transactions.py::test_body_that_raises_*",
        f"{_BELOW}transactions.py::test_cancelled_body_gives_the_messages_back",
        f"{_BELOW}transactions.py::test_consumer_that_was_opened_again_has_other_*",
        f"{_BELOW}transactions.py::test_messages_have_keys_attributes_and_*",
        f"{_BELOW}transactions.py::test_subscription_that_was_created_again_has_*",
        f"{_BELOW}transactions.py::test_many_messages_are_sent_before_the_commit",
        f"{_BELOW}transactions.py::test_first_transaction_of_a_message_that_timed_out_*",
        f"{_BELOW}transactions.py::test_message_is_not_acknowledged_by_two_*",
        f"{_BELOW}transactions.py::test_newer_transaction_of_the_same_name_*",
        f"{_BELOW}transactions.py::test_transaction_may_acknowledge_messages_that_*",
        f"{_BELOW}transactions.py::test_transaction_may_only_acknowledge_or_*",
        f"{_BELOW}transactions.py::test_two_deliveries_of_a_message_are_not_*",
        f"{_BELOW}transactions.py::test_ranges_of_a_transaction_are_bounded",
        f"{_BELOW}transactions.py::test_results_and_acknowledgements_are_visible_*",
        f"{_BELOW}transactions.py::test_messages_of_a_held_commit_come_to_nobody",
    ),
    COUNTS: (
        "e2e/test_cli_messages.py::test_messages_may_be_delayed_and_may_expire",
        f"{_CLIENT}client.py::test_reported_progress_is_shown_by_the_subscription",
        f"{_BELOW}producer.py::test_expired_message_is_not_delivered",
    ),
    UNREPEATED: (
        "e2e/test_admin_cli.py::test_settings_apply_to_all_partitions",
        "e2e/test_cli_messages.py::test_dead_letters_are_listed_and_shown",
        f"{_BELOW}namespaces.py::test_namespace_is_created_described_and_*",
        f"{_CLIENT}client.py::test_subscriptions_are_created_described_and_deleted",
        f"{_BELOW}subscriptions.py::test_settings_are_returned_as_they_were_set",
    ),
    EPOCH: (
        "e2e/test_admin_cli.py::test_the_same_topics_are_found_with_and_*",
        f"{_CLIENT}client.py::test_topics_are_created_listed_described_and_deleted",
    ),
}

_CLUSTER = {
    **_FAILURES,
    ALONE: (
        "e2e/test_admin_cli.py::test_a_broker_alone_is_no_cluster",
        "e2e/test_admin_cli.py::test_broker_is_listed_and_described",
        f"{_ADMIN}{EXAMPLE}brokers",
        f"{_ADMIN}{EXAMPLE}cluster_and_roles",
        f"{_ADMIN}{EXAMPLE}topics",
    ),
    ONE_BROKER: (f"{_BELOW}transactions.py::test_transaction_spans_partitions_and_*",),
    REMOTE: (
        f"{_BELOW}topics.py::test_acknowledged_segments_are_dropped_and_*",
        f"{_CLIENT}client.py::test_storage_without_a_remote_store_is_described",
        f"{_BELOW}storage.py::test_a_broker_outside_of_a_cluster_has_no_name",
    ),
}

DIFFERENCES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cluster": _CLUSTER,
    "processes": {
        **_CLUSTER,
        # Takeovers are on a disk, and take longer than the steps of clients.
        UNREPEATED: (
            *_FAILURES[UNREPEATED],
            f"{_BELOW}subscriptions.py::test_start_that_does_not_exist_is_refused",
        ),
        MOMENTS: (
            *_FAILURES[MOMENTS],
            f"{_BELOW}workers.py::test_messages_that_run_or_wait_keep_their_time",
        ),
    },
    "restarts": _FAILURES,
    "secured": {
        INSIDE: (
            f"{_CLIENT}client.py::test_requests_that_must_not_be_repeated_wait_*",
            f"{_CLIENT}client.py::test_requests_are_repeated_for_the_time_that_the_*",
            f"{_BELOW}connection.py::*",
            f"{_CLIENT}counters.py::test_life_of_a_connection_is_logged_and_reported",
            f"{_CLIENT}counters.py::test_log_has_no_credentials",
            f"{_CLIENT}counters.py::test_outage_is_logged_once",
            f"{_BELOW}producer.py::test_the_holder_keeps_its_access_before_a_*",
            f"{_BELOW}reader.py::test_messages_of_a_repeated_request_are_read_once",
            f"{_BELOW}reader.py::test_prefetch_is_bounded_in_bytes",
            f"{_BELOW}reader.py::test_reader_requests_more_while_*",
            f"{_BELOW}reader.py::test_reader_that_stops_cancels_the_request_*",
        ),
        MOMENTS: _MOMENTS,
        PROCESSES: _PROCESSES,
        OWN_POLICY: (
            f"{_ADMIN}{EXAMPLE}cluster_and_roles",
            f"{_DANUBE}{EXAMPLE}other_services",
            f"{_BELOW}security.py::*",
            f"{_BELOW}connectors.py::*",
            "packages/pydanube-connect/tests/test_worker.py::*",
            f"{_REPLICATION}replicator.py::test_schemas_that_are_not_permitted_end_it",
        ),
        MALFORMED: (
            f"{_DANUBE}{EXAMPLE}lookup",
            f"{_ADMIN}{EXAMPLE}topics",
            f"{_DANUBE}{EXAMPLE}ack_and_nack",
            f"{_DANUBE}{EXAMPLE}schema_registry",
            f"{_DANUBE}{EXAMPLE}send_message",
        ),
        OTHERS: (
            f"{_ADMIN}{EXAMPLE}namespaces",
            "e2e/test_admin_cli.py::test_broker_is_listed_and_described",
            f"{_CLIENT}client.py::test_topics_are_created_listed_described_and_*",
            f"{_BELOW}namespaces.py::test_namespace_is_created_described_*",
            f"{_BELOW}schemas.py::test_missing_subjects_and_versions_are_not_found",
            f"{_BELOW}writer_schemas.py::test_message_of_a_deleted_schema_keeps_*",
        ),
    },
    "without-arrow": {
        COMPRESSION: (
            f"{_CLIENT}deduplication.py::test_compressed_batches_are_deduplicated",
            f"{_BELOW}producer.py::test_compressed_batches_are_*",
            f"{_BELOW}staging.py::test_part_has_every_column_of_the_envelope",
        ),
    },
}
"""By world and reason: patterns of the names of tests, below ``tests``."""

FOR_DEVELOPERS = frozenset(
    {INSIDE, MOMENTS, PROCESSES, OWN_POLICY, ALONE, GRPC_CLIENTS, COMPRESSION}
)
"""The reasons that say nothing to users."""


def find_difference(world: str, nodeid: str) -> str | None:
    """Return why the test *nodeid* cannot hold in *world*; None: it must."""
    name, _, example = nodeid.removeprefix("tests/").partition("[")
    example = example.rstrip("]").removeprefix(f"{world}-").removesuffix(f"-{world}")
    for reason, patterns in DIFFERENCES.get(world, {}).items():
        for each in patterns:
            test, _, examples = each.partition(EXAMPLE)
            if fnmatchcase(name, test) and examples in {"", example}:
                return reason
    return None
