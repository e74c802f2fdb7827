"""The statuses of errors."""

from __future__ import annotations

import pytest

from pydanube.model.errors import (
    ERRORS,
    AlreadyExists,
    BrokerError,
    ConsumerBusy,
    CorruptJournal,
    Draining,
    InvalidName,
    OffsetDropped,
    ProducerFenced,
    QuotaExceeded,
    Remedy,
    TopicFenced,
    TopicNotFound,
)
from pydanube_broker.servers.connections.errors import (
    GRPC_STATUS,
    GRPC_STATUS_OF_PUBLISH,
    HTTP_STATUS,
    grpc_status_of,
    grpc_status_of_publish,
    http_status_of,
)

LEAVES = [
    cls
    for cls in ERRORS.values()
    if not any(each is not cls and issubclass(each, cls) for each in ERRORS.values())
]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(
    "table",
    [HTTP_STATUS, GRPC_STATUS, GRPC_STATUS_OF_PUBLISH],
    ids=["http", "grpc", "publish"],
)
def test_every_error_has_a_status_in_each_table(
    leaf: type[BrokerError], table: dict[type[BrokerError], object]
) -> None:
    named = [cls for cls in leaf.__mro__ if cls in table]
    assert named[0] is not BrokerError


@pytest.mark.parametrize("leaf", LEAVES)
def test_statuses_separate_client_and_server_errors(leaf: type[BrokerError]) -> None:
    may_be_repeated = leaf.remedy is not Remedy.GIVE_UP
    assert (http_status_of(leaf) in {503, 504, 507}) == may_be_repeated
    repeated = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    assert (grpc_status_of(leaf).name in repeated) == may_be_repeated


@pytest.mark.parametrize("leaf", LEAVES)
def test_clients_do_not_retry_permanent_errors(leaf: type[BrokerError]) -> None:
    status = grpc_status_of_publish(leaf("x")).name
    # After these statuses the Java client retries without end or delay.
    endless = {"ABORTED", "FAILED_PRECONDITION", "NOT_FOUND"}
    assert status not in endless


@pytest.mark.parametrize(
    ("error", "status", "status_of_publish"),
    [
        (InvalidName("x"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        (TopicNotFound("x"), "NOT_FOUND", "UNAVAILABLE"),
        (QuotaExceeded("x"), "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
        (ProducerFenced("x"), "FAILED_PRECONDITION", "INVALID_ARGUMENT"),
        (TopicFenced("x"), "FAILED_PRECONDITION", "UNAVAILABLE"),
        (AlreadyExists("x"), "ALREADY_EXISTS", "ALREADY_EXISTS"),
        (Draining("x"), "UNAVAILABLE", "UNAVAILABLE"),
        (CorruptJournal("x"), "DATA_LOSS", "DATA_LOSS"),
        (BrokerError("x"), "INTERNAL", "INTERNAL"),
    ],
)
def test_grpc_statuses_match_the_remedy(
    error: BrokerError, status: str, status_of_publish: str
) -> None:
    assert grpc_status_of(error).name == status
    assert grpc_status_of_publish(error).name == status_of_publish


def test_codes_are_unique() -> None:
    def tree(cls: type[BrokerError]) -> list[type[BrokerError]]:
        return [cls, *(each for sub in cls.__subclasses__() for each in tree(sub))]

    ours = [cls for cls in tree(BrokerError) if cls.__module__.startswith("pydanube")]
    codes = [cls.code for cls in ours]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidName("x"), 400),
        (TopicNotFound("x"), 404),
        (OffsetDropped("x"), 410),
        (ConsumerBusy("x"), 409),
        (AlreadyExists("x"), 409),
        (Draining("x"), 503),
        (CorruptJournal("x"), 500),
        (BrokerError("x"), 500),
    ],
)
def test_status_of_the_nearest_ancestor_is_used(
    error: BrokerError, status: int
) -> None:
    assert http_status_of(error) == status
