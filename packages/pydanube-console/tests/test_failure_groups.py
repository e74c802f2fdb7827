"""Reasons that differ by values belong to one group."""

from dataclasses import dataclass

import pytest

from pydanube_console.pure.failure_groups import (
    COMPARED_CHARACTERS_MAX,
    Failure,
    group_by_failure,
    normalise_reason,
)


@dataclass
class Failed:
    reason: str


@pytest.mark.parametrize(
    ("reason", "kind", "text"),
    [
        ("", "", ""),
        ("too old", "", "too old"),
        ("ValueError: order 17 is too old", "ValueError", "order <number> is too old"),
        ("ValueError", "ValueError", ""),
        ("ValueError:", "ValueError", ""),
        ("shop.errors.NoStock: item-4711", "NoStock", "item-<number>"),
        ("KeyError: 'user_id'", "KeyError", "'user_id'"),
        ("no user 'ada'", "", "no user <text>"),
        ('no user "ada"', "", "no user <text>"),
        ("it doesn't fit", "", "it doesn't fit"),
        ("Timeout: 10.0.0.7:5432 after 1.5 s", "Timeout", "<address> after <number> s"),
        ("at 2025-03-01T09:30:00.125Z", "", "at <time>"),
        ("at 2025-03-01 09:30", "", "at <time>"),
        ("id 3f2b8c1e-0d4a-4f6e-9b7a-1c2d3e4f5a6b", "", "id <id>"),
        ("GET https://shop.example/orders/7: 503", "", "GET <url> <number>"),
        ("mail to ada@shop.example", "", "mail to <mail>"),
        ("at 0x7f2a, digest 9a3bc4de5f", "", "at <hex>, digest <hex>"),
        ("a\n  b\tc", "", "a b c"),
    ],
)
def test_values_are_left_out_of_a_reason(reason, kind, text):
    assert normalise_reason(reason) == Failure(kind, text)


def test_only_the_beginning_of_a_reason_is_compared():
    beginning = "x " * (COMPARED_CHARACTERS_MAX // 2)
    assert normalise_reason(beginning + "a") == normalise_reason(beginning + "b")


def test_groups_keep_order_and_the_largest_comes_first():
    failed = [
        Failed(each)
        for each in ("TypeError: x", "ValueError: no 1", "ValueError: no 2", "other")
    ]
    groups = group_by_failure(failed)
    assert [(each.failure.kind, len(each.members)) for each in groups] == [
        ("ValueError", 2),
        ("TypeError", 1),
        ("", 1),
    ]
    assert groups[0].members == failed[1:3]
