"""Codes and remedies of errors."""

from __future__ import annotations

import inspect

import pytest

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
