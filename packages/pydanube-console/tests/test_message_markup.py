"""Messages are shown, masked, and copied."""

import json

import pytest

from pydanube_console.message_markup import render_messages, to_json
from pydanube_console.message_search import FoundMessage
from pydanube_console.settings import Payloads
from support.worlds.current import memory_broker

TOPIC = "/default/t"
EVIL = b"<img src=x onerror=alert(1)>"


@pytest.fixture
async def messages():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(EVIL, key="secret-key", attributes={"who": "ada"})
            await producer.send(b"\xff")
        yield [
            FoundMessage(each, None)
            async for batch in client.read(TOPIC)
            for each in batch
        ]


async def test_html_in_a_message_is_shown_as_text(messages):
    shown = render_messages(messages, Payloads.SHOW)
    assert "<img" not in shown
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "secret-key" in shown
    assert "who=ada" in shown


async def test_masked_messages_show_no_content(messages):
    shown = render_messages(messages, Payloads.MASK)
    assert "28 bytes, not shown" in shown
    for secret in ("img", "secret-key", "ada"):
        assert secret not in shown


async def test_json_has_texts_and_base64(messages):
    first, second = json.loads(to_json(messages))
    assert first["payload"] == EVIL.decode()
    assert (first["key"], first["attributes"]) == ("secret-key", {"who": "ada"})
    assert second["payload_base64"] == "/w=="
