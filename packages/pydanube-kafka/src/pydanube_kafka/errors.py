"""The broker's errors as error codes of Kafka."""

from __future__ import annotations

from collections.abc import Awaitable

import pyarrow as pa

from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Corrupt,
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    JournalFailed,
    MessageTooLarge,
    NamespaceNotFound,
    OffsetDropped,
    OutOfSequence,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    Refused,
    SchemaMismatch,
    StagedPartNotFound,
    StagingClosed,
    SubscriptionInUse,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionFenced,
    Unavailable,
)
from pydanube_kafka.wire.apis import ErrorCode
from pydanube_kafka.wire.record_batches import BadRecords, OldFormat


class Refusal(Exception):
    """A request that is refused with an error that only Kafka's protocol knows."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (OldFormat, ErrorCode.unsupported_for_message_format),
    (BadRecords, ErrorCode.corrupt_message),
    (pa.ArrowException, ErrorCode.invalid_record),
    (UnicodeError, ErrorCode.invalid_record),
    (InvalidName, ErrorCode.invalid_topic_exception),
    (MessageTooLarge, ErrorCode.message_too_large),
    (OutOfSequence, ErrorCode.out_of_order_sequence_number),
    (InvalidPayload, ErrorCode.invalid_record),
    (SchemaMismatch, ErrorCode.invalid_record),
    (InvalidRequest, ErrorCode.invalid_request),
    (QuotaExceeded, ErrorCode.policy_violation),
    (Refused, ErrorCode.topic_authorization_failed),
    (TopicNotFound, ErrorCode.unknown_topic_or_partition),
    (NamespaceNotFound, ErrorCode.unknown_topic_or_partition),
    (SubscriptionNotFound, ErrorCode.group_id_not_found),
    (SubscriptionInUse, ErrorCode.non_empty_group),
    (OffsetDropped, ErrorCode.offset_out_of_range),
    (AlreadyExists, ErrorCode.topic_already_exists),
    (ProducerFenced, ErrorCode.invalid_producer_epoch),
    (TransactionFenced, ErrorCode.invalid_producer_epoch),
    (StagedPartNotFound, ErrorCode.transaction_abortable),
    (StagingClosed, ErrorCode.transaction_abortable),
    (ProducerBusy, ErrorCode.invalid_producer_epoch),
    (JournalFailed, ErrorCode.kafka_storage_error),
    (Corrupt, ErrorCode.kafka_storage_error),
    (Unavailable, ErrorCode.not_leader_or_follower),
)
"""The first that matches counts."""

HANDLED = (BrokerError, Refusal, BadRecords, pa.ArrowException, UnicodeError)
"""The errors that fail one partition of a request, and not its connection."""


async def attempt(work: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """Await *work*; return its error as a code and a text, or none."""
    try:
        await work
    except HANDLED as error:
        return code_of(error), str(error)
    return ErrorCode.none, None


def code_of(error: BaseException) -> ErrorCode:
    """Return the error code that tells a client of *error*."""
    if isinstance(error, Refusal):
        return error.code
    for type_, code in _CODES:
        if isinstance(error, type_):
            return code
    return ErrorCode.unknown_server_error
