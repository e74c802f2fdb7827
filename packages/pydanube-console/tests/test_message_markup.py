"""Messages are shown, masked, and laid out as a table."""

import json

import pytest

from pydanube_cli.messages.message_fields import parse_fields
from pydanube_console.message_markup import (
    render_messages,
    render_suggestions,
    render_table,
    suggested_fields,
)
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
            value = {
                "user": {"name": "Ada"},
                "items": [1, [2, 3]],
                "key": 0,
                "a b": 0,
                "a,b": 0,
                'a"b': 0,
                "": 0,
            }
            await producer.send(json.dumps(value).encode())
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


async def test_table_has_columns_and_whole_messages_below(messages):
    shown = render_table(messages, parse_fields("user.name, items[1]"), Payloads.SHOW)
    assert ">user.name</th>" in shown
    assert '<td class="">Ada</td><td class="">[2,3]</td>' in shown
    assert shown.count('aria-expanded="false"') == 3
    assert shown.count("hidden=") == 3
    assert "<img" not in shown


async def test_masked_table_has_no_columns_of_values(messages):
    shown = render_table(messages, parse_fields("user.name"), Payloads.MASK)
    for secret in ("user.name", "Ada", "img", "secret-key"):
        assert secret not in shown


async def test_fields_are_offered_as_columns(messages):
    assert suggested_fields(messages) == [
        "attributes.who",
        "user",
        "items",
        "value.key",
        '"a b"',
    ]
    shown = render_suggestions(["user", "items"], ["items"])
    assert shown.count('aria-pressed="true"') == 1
