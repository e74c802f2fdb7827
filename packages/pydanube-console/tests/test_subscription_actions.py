"""The preview says what a change of the position means."""

import pytest

pytest.importorskip("nicegui")

from pydanube_console.subscription_actions import preview_text, skip_text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (5, 1005, "About 1,000 messages are delivered again; 1,005 wait then."),
        (5, 4, "About 1 message is skipped; 4 wait then."),
        (5, 5, "Nothing changes: 5 messages wait."),
    ],
)
def test_preview_counts_messages(before, after, text):
    assert preview_text(before, after) == text


@pytest.mark.parametrize(
    ("backlog", "count", "text"),
    [
        (5, 1, "1 message is skipped, the first at offset 7; 4 wait then."),
        (5, 9, "5 messages are skipped, the first at offset 7; 0 wait then."),
        (0, 1, "Nothing changes: no message waits."),
    ],
)
def test_preview_of_a_skip_is_bounded_by_what_waits(backlog, count, text):
    assert skip_text(7, backlog, count) == text
