"""What failed calls mean."""

import pytest

from pydanube.model.errors import (
    InvalidConfig,
    MetadataUnavailable,
    TransactionTooLarge,
)
from pydanube_broker.metadata.etcd.failures import (
    AnswerTooLarge,
    Compacted,
    LeaseNotFound,
    NoAnswer,
    StaleToken,
    failure_of,
)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", NoAnswer),
        ("UNAVAILABLE", "etcdserver: no leader", NoAnswer),
        ("UNAVAILABLE", "etcdserver: request timed out", NoAnswer),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", NoAnswer),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", NoAnswer),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", StaleToken),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", StaleToken),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseNotFound),
        (
            "OUT_OF_RANGE",
            "etcdserver: mvcc: required revision has been compacted",
            Compacted,
        ),
        (
            "INVALID_ARGUMENT",
            "etcdserver: too many operations in txn request",
            TransactionTooLarge,
        ),
        (
            "INVALID_ARGUMENT",
            "etcdserver: request is too large",
            TransactionTooLarge,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "grpc: received message larger than max (3000000 vs. 2097152)",
            TransactionTooLarge,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "CLIENT: Received message larger than max (17 vs. 16)",
            AnswerTooLarge,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "etcdserver: mvcc: database space exceeded",
            MetadataUnavailable,
        ),
        ("PERMISSION_DENIED", "etcdserver: permission denied", MetadataUnavailable),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            InvalidConfig,
        ),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", InvalidConfig),
        ("FAILED_PRECONDITION", "etcdserver: something new", MetadataUnavailable),
    ],
)
def test_failure_of_a_call(code, details, expected):
    failure = failure_of(code, details)
    assert type(failure) is expected
    assert details in str(failure)
