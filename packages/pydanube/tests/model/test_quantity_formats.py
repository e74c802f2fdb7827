"""Quantities are shown as people write them."""

import pytest

from pydanube.model.quantity_formats import (
    format_age,
    format_bytes,
    format_messages,
    format_offsets,
)


@pytest.mark.parametrize(
    ("base", "end", "count", "text"),
    [
        (0, 4, 4, "0\u20133 (4 messages)"),
        (7, 8, 1, "7 (1 message)"),
        (0, 0, 0, "none, the next is 0"),
        (1000, 3000, 1500, "1000\u20132999 (1,500 messages)"),
    ],
)
def test_offsets_are_shown_from_the_first_to_the_last(base, end, count, text):
    assert format_offsets(base, end, count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_sizes_are_shown_in_the_unit_that_suits(count, text):
    assert format_bytes(count) == text


def test_one_message_is_not_messages():
    assert [format_messages(n) for n in (0, 1, 1234)] == [
        "0 messages",
        "1 message",
        "1,234 messages",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3700, "1h 1m"),
        (3605, "1h"),
        (266_400, "3d 2h"),
    ],
)
def test_age_has_its_two_largest_units(seconds, text):
    assert format_age(seconds) == text
