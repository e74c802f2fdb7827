"""Dead letters are edited only if nothing of them is lost, and shown in groups."""

from __future__ import annotations

import pytest

from pydanube.client.consumers.dead_letters import DeadLetter
from pydanube_console.dead_letter_markup import (
    EDITED_BYTES_MAX,
    GROUPS_SHOWN,
    edit_refusal,
    editable_text,
    render_groups,
    render_letters,
)
from pydanube_console.pure.failure_groups import group_by_failure
from pydanube_console.settings import Payloads
from support.worlds.current import memory_broker


@pytest.mark.parametrize("payload", [b"", b"{}", "größe\n".encode()])
def test_text_is_edited_as_it_is(payload):
    assert editable_text(payload).encode() == payload


@pytest.mark.parametrize("payload", [b"\xff", b"\x00\x01", b"a\r\nb"])
def test_payloads_that_a_text_field_would_change_are_not_edited(payload):
    assert editable_text(payload) is None


def test_long_payloads_are_not_edited_in_a_browser():
    assert edit_refusal(b"a" * EDITED_BYTES_MAX) == ""
    assert "262,145 bytes" in edit_refusal(b"a" * (EDITED_BYTES_MAX + 1))
    assert edit_refusal(b"\xff") == "It is not plain text."


async def test_buttons_of_a_dead_letter_say_why_they_do_nothing():
    letters = [letter async for letter in dead_letters([b"{}", b"\xff"])]
    shown = render_letters(letters, Payloads.SHOW, replay_refusal="", drop_refusal="")
    assert shown.count("disabled") == 1
    assert 'aria-label="Edit dead letter 1" disabled' in shown
    assert 'title="It is not plain text."' in shown
    masked = render_letters(
        letters, Payloads.MASK, replay_refusal="No.", drop_refusal=""
    )
    assert masked.count('title="No."') == 4
    assert "{}" not in masked


async def test_groups_beyond_the_limit_are_counted():
    names = "abcdefghijklmnopqrstuvwxyz"
    reasons = [f"{a}{b}" for a in names[:6] for b in names][: GROUPS_SHOWN + 2]
    letters = [letter async for letter in dead_letters([b"{}"] * len(reasons), reasons)]
    groups = group_by_failure(letters)
    shown = render_groups(groups, groups[0])
    assert "2 further groups are not shown." in shown
    assert shown.count(">Only these<") == GROUPS_SHOWN - 1


async def dead_letters(payloads, reasons=()):
    """Yield dead letters with *payloads*, as a consumer leaves them behind."""
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer("/default/dead") as producer:
            for payload in payloads:
                await producer.send(payload)
        reasons = iter(reasons or ["too old"] * len(payloads))
        async for batch in client.read("/default/dead"):
            for message in batch:
                yield DeadLetter(message, "/default/t", 0, 1, next(reasons), ())
