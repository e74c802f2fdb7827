"""The exit codes of errors."""

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
    Remedy,
    TopicNotFound,
)
from pydanube_cli.invocation.exit_codes import EXIT_CODE, exit_code_of

LEAVES = [
    cls
    for cls in ERRORS.values()
    if not any(each is not cls and issubclass(each, cls) for each in ERRORS.values())
]


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_error_has_an_exit_code(leaf: type[BrokerError]) -> None:
    named = [cls for cls in leaf.__mro__ if cls in EXIT_CODE]
    assert named[0] is not BrokerError


@pytest.mark.parametrize("leaf", LEAVES)
def test_exit_codes_say_whether_to_repeat(leaf: type[BrokerError]) -> None:
    may_be_repeated = leaf.remedy is not Remedy.GIVE_UP
    assert (exit_code_of(leaf) in {7, 8, 9}) == may_be_repeated


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InvalidName("x"), 2),
        (TopicNotFound("x"), 3),
        (OffsetDropped("x"), 3),
        (ConsumerBusy("x"), 4),
        (AlreadyExists("x"), 5),
        (Draining("x"), 7),
        (CorruptJournal("x"), 11),
        (BrokerError("x"), 1),
    ],
)
def test_exit_code_of_the_nearest_ancestor_is_used(
    error: BrokerError, exit_code: int
) -> None:
    assert exit_code_of(error) == exit_code


def test_exit_codes_fit_a_shell() -> None:
    # The shell uses 126 and above.
    assert all(0 < code < 126 for code in EXIT_CODE.values())
