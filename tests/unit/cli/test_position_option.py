"""Positions in a topic as options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pydanube.cli.position_option import parse_position
from pydanube.model.errors import InvalidRequest

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("0", 0),
        (" 4711 ", 4711),
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("15m", NOW - timedelta(minutes=15)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("2025-03-01T09:30:00Z", datetime(2025, 3, 1, 9, 30, tzinfo=UTC)),
    ],
)
def test_position_is_an_offset_an_end_a_time_or_an_age(text, where):
    assert parse_position(text, NOW) == where


@pytest.mark.parametrize("text", ["", "newest", "-1", "15 parsecs", "2025-13-01"])
def test_invalid_position_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse_position(text, NOW)
