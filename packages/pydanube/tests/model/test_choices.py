"""The words for enumerations, which type checkers know as literals."""

import typing

import pytest

from pydanube.model import choices
from pydanube.model.policy import (
    CorruptionPolicy,
    Durability,
    ProducerAccess,
    Start,
    SubscriptionType,
)


@pytest.mark.parametrize(
    ("words", "enumeration"),
    [
        (choices.SubscriptionTypeName, SubscriptionType),
        (choices.AccessName, ProducerAccess),
        (choices.StartName, Start),
        (choices.DurabilityName, Durability),
        (choices.CorruptionPolicyName, CorruptionPolicy),
    ],
)
def test_words_are_those_of_the_enumeration(words, enumeration):
    assert typing.get_args(words) == tuple(each.value for each in enumeration)
