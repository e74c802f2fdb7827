"""Dead letters are edited only if nothing of them is lost."""

from __future__ import annotations

import pytest

from pydanube_console.pages.dead_letters import editable_text


@pytest.mark.parametrize("payload", [b"", b"{}", "größe\n".encode()])
def test_text_is_edited_as_it_is(payload):
    assert editable_text(payload).encode() == payload


@pytest.mark.parametrize("payload", [b"\xff", b"\x00\x01", b"a\r\nb"])
def test_payloads_that_a_text_field_would_change_are_not_edited(payload):
    assert editable_text(payload) is None
