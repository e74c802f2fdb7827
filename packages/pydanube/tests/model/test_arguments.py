"""Checks of arguments against type hints."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import numpy as np
import pytest

from pydanube.model.arguments import check, checked, checks_arguments
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    TopicPolicy,
)


def operation(
    topic: str,
    *,
    retention_age_s: float | None = None,
    redelivery_delay_s_max: float = 1.0,
    partitions: int | None = None,
    prefetch_bytes: int = 1,
    force: bool = False,
    limits: DispatchLimits | None = None,
    policy: FailurePolicy | TopicPolicy | None = None,
    times: Sequence[datetime | float] = (),
    names: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    mode: Literal["a", "b"] = "a",
    schema: type | None = None,
    marked: Annotated[int, "a mark"] = 0,
    callback: Callable[[], None] | None = None,
    token: str = "",
) -> None:
    """Stand for the signatures of the client."""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topic": None}, "topic must be a str, not None"),
        (
            {"retention_age_s": "7d"},
            "retention_age_s must be a number of seconds or None, not '7d' (str)",
        ),
        (
            {"redelivery_delay_s_max": "7"},
            "redelivery_delay_s_max must be a number of seconds, not '7' (str)",
        ),
        (
            {"partitions": "3"},
            "partitions must be a whole number or None, not '3' (str)",
        ),
        (
            {"partitions": 3.0},
            "partitions must be a whole number or None, not 3.0 (float)",
        ),
        (
            {"partitions": True},
            "partitions must be a whole number or None, not True (bool)",
        ),
        (
            {"prefetch_bytes": "1MB"},
            "prefetch_bytes must be a whole number of bytes, not '1MB' (str)",
        ),
        ({"force": "yes"}, "force must be True or False, not 'yes' (str)"),
        ({"limits": 5}, "limits must be a DispatchLimits or None, not 5 (int)"),
        (
            {"policy": FailurePolicy(poison="dead_letter")},
            (
                "policy.poison must be PoisonPolicy.DEAD_LETTER, PoisonPolicy.BLOCK or "
                "PoisonPolicy.DROP, not 'dead_letter' (str)"
            ),
        ),
        (
            {"policy": FailurePolicy(redelivery_delay_s="5")},
            "policy.redelivery_delay_s must be a number of seconds, not '5' (str)",
        ),
        ({"times": "now"}, "times must be a list, not 'now' (str)"),
        (
            {"times": [1.0, "now"]},
            "times[1] must be a datetime or a number, not 'now' (str)",
        ),
        ({"names": b"abc"}, "names must be a list, not b'abc' (bytes)"),
        ({"options": [1]}, "options must be a dict or None, not [1] (list)"),
        ({"options": {"a": 1}}, "options['a'] must be a str, not 1 (int)"),
        ({"mode": "c"}, "mode must be 'a' or 'b', not 'c' (str)"),
        ({"schema": "Order"}, "schema must be a class or None, not 'Order' (str)"),
        ({"marked": "x"}, "marked must be a whole number, not 'x' (str)"),
        ({"token": 5}, "token must be a str, not int"),
    ],
)
def test_a_wrong_type_is_explained_with_name_value_and_expectation(values, message):
    with pytest.raises(InvalidRequest) as raised:
        check(operation, values)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "values",
    [
        {"retention_age_s": 7},
        {"retention_age_s": np.float32(7)},
        {"partitions": np.int64(3)},
        {"policy": FailurePolicy(poison=PoisonPolicy.DROP)},
        {"policy": TopicPolicy()},
        {"times": (1, datetime(2025, 1, 1))},  # noqa: DTZ001  # Not checked here.
        {"times": np.array([1.0])},
        {"names": (name for name in "ab")},
        {"names": {"a"}},
        {"options": {"a": "b"}},
        {"schema": FailurePolicy},
        {"callback": print},
        {"unknown": 5},
    ],
)
def test_values_of_the_right_types_pass(values):
    check(operation, values)


def test_a_long_value_is_shortened():
    with pytest.raises(InvalidRequest) as raised:
        check(operation, {"partitions": "3" * 1000})
    assert len(str(raised.value)) < 150


@checks_arguments
class Operations:
    """A class like those of the client."""

    def find(self, topic: str, end: int | None = None) -> str:
        return f"{topic} {end}"

    async def delete(self, topic: str, *, force: bool = False) -> str:
        return f"{topic} {force}"


async def test_public_methods_check_positional_and_named_arguments():
    operations = Operations()
    assert operations.find("/a/b", 3) == "/a/b 3"
    assert await operations.delete("/a/b", force=True) == "/a/b True"
    with pytest.raises(InvalidRequest, match="end must be a whole number or None"):
        operations.find("/a/b", "3")
    with pytest.raises(InvalidRequest, match="force must be True or False"):
        await operations.delete("/a/b", force="yes")


def test_an_unknown_argument_is_reported_by_python_itself():
    with pytest.raises(TypeError, match=r"operation\(\) got an unexpected keyword"):
        checked(operation)("/a/b", header="x")
