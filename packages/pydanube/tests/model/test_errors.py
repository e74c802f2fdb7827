"""Codes and remedies of errors."""

from __future__ import annotations

import inspect
import pickle
import traceback

import pytest

import pydanube
from pydanube.model import errors
from pydanube.model.errors import (
    ERRORS,
    BrokerError,
    CorruptBatch,
    NotOwner,
    Overloaded,
    Remedy,
    TopicNotFound,
    error_of,
)

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, BrokerError)
]


CODES = """
    already_exists
    backup_running
    binding_not_found
    broker_error
    closed
    cluster_in_use
    conflict
    connection_lost
    consumer_busy
    consumer_replaced
    corrupt
    corrupt_backup
    corrupt_batch
    corrupt_journal
    corrupt_segment
    corrupt_stage
    directory_locked
    directory_replaced
    disk_full
    draining
    incompatible_schema
    inconsistent_directory
    invalid_config
    invalid_name
    invalid_payload
    invalid_request
    invalid_schema
    journal_failed
    message_not_held
    message_too_large
    metadata_unavailable
    namespace_in_use
    namespace_not_found
    newer_journal
    not_found
    not_owner
    objects_unavailable
    offset_dropped
    other_schema
    out_of_sequence
    overloaded
    permission_denied
    producer_busy
    producer_fenced
    protocol_violation
    query_not_found
    quota_exceeded
    refused
    request_failed
    revision_conflict
    role_in_use
    role_not_found
    schema_in_use
    schema_mismatch
    schema_not_found
    segments_changed
    session_lost
    staged_part_not_found
    staging_closed
    subscription_in_use
    subscription_not_found
    timed_out
    topic_fenced
    topic_held
    topic_not_found
    transaction_fenced
    transaction_too_large
    unauthenticated
    unavailable
    version_behind
"""


def test_codes_never_change():
    assert sorted(ERRORS) == CODES.split()


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_has_a_unique_code(cls):
    assert "code" in vars(cls)
    assert [each for each in CLASSES if each.code == cls.code] == [cls]
    assert cls.code == cls.code.lower()
    assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_round_trips_by_its_code(cls):
    error = error_of(cls.code, "for people")
    assert type(error) is cls is ERRORS[cls.code]
    assert str(error) == "for people"


def test_error_of_a_newer_peer_is_not_retried():
    error = error_of("something_new", "what")
    assert type(error) is BrokerError
    assert error.remedy is Remedy.GIVE_UP


def test_remedies_are_inherited():
    assert Overloaded.remedy is Remedy.RETRY
    assert NotOwner.remedy is Remedy.LOOK_UP_AGAIN
    assert TopicNotFound.remedy is CorruptBatch.remedy is Remedy.GIVE_UP


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_are_printed_and_pickled_under_their_public_name(cls):
    assert getattr(pydanube, cls.__name__) is cls
    line, *notes = traceback.format_exception_only(cls("too long"))
    assert line == f"pydanube.{cls.__name__}: too long\n"
    again = pickle.loads(pickle.dumps(cls("too long")))
    assert type(again) is cls
    assert traceback.format_exception_only(again) == [line, *notes]
