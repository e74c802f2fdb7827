"""Positions and contents of sampled messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_console.administration.message_samples import parse_start, shown_text


def test_positions_are_offsets_words_and_times():
    assert parse_start("12") == 12
    assert parse_start("latest") == "latest"
    assert parse_start("2026-01-31T09:30:00Z") == datetime(
        2026, 1, 31, 9, 30, tzinfo=UTC
    )


@pytest.mark.parametrize("text", ["", "-1", "noon", "2026-01-31T09:30:00"])
def test_other_positions_are_refused(text):
    with pytest.raises(InvalidRequest, match="is no position"):
        parse_start(text)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"text", "text"),
        (b"long text", "long t… (9 bytes)"),
        ("aaaaä!".encode(), "aaaa… (7 bytes)"),
        (b"\xff", "base64:/w=="),
        (b"\xff" * 9, "base64:////////… (9 bytes)"),
    ],
)
def test_contents_are_text_or_base64_and_say_what_is_cut(content, shown):
    if content.startswith(b"aaaa"):
        assert shown_text(content, 5) == shown
    else:
        assert shown_text(content, 6) == shown
