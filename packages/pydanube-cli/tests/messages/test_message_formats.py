"""The formats of printed messages."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from pydanube.client.messages.messages import MessageBatch
from pydanube_cli.commands.consume import whole_lines
from pydanube_cli.messages.message_formats import (
    RENDERERS,
    Output,
    json_line,
    value_in_json,
)
from support.fakes.batches import A_TIME, messages_of


def message_of(payload, **options):
    return messages_of([payload], base=41, **options)[0]


def test_json_line_has_all_fields_of_a_message():
    message = message_of(
        b'{"price": 7}', keys=[b"shop-7"], attributes=[{"source": "web"}], producer="p"
    )
    line = json_line(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "/default/orders",
        "offset": 41,
        "publish_time": "2023-11-14T22:13:20Z",
        "key": "shop-7",
        "attributes": {"source": "web"},
        "producer": "p",
        "attempt": 1,
        "payload": '{"price": 7}',
    }


def test_microseconds_are_kept():
    line = json_line(message_of(b"", time=A_TIME + 1))
    assert json.loads(line)["publish_time"] == "2023-11-14T22:13:20.000001Z"


def test_delivery_window_is_shown_if_there_is_one():
    message = message_of(b"", deliver_at=[A_TIME], expires_at=[A_TIME + 1])
    fields = json.loads(json_line(message))
    assert fields["deliver_at"] == "2023-11-14T22:13:20Z"
    assert fields["expires_at"] == "2023-11-14T22:13:20.000001Z"


def test_binary_payload_is_base64():
    fields = json.loads(json_line(message_of(b"\xff\x00", keys=[b"\xfe"])))
    assert fields["payload_base64"] == "/wA="
    assert fields["key_base64"] == "/g=="
    assert "payload" not in fields


def test_newlines_in_a_payload_do_not_break_the_line():
    line = json_line(message_of("a\nb\u2028c".encode()))
    assert line.count(b"\n") == 1
    assert json.loads(line)["payload"] == "a\nb\u2028c"


def test_a_message_without_a_key_has_null():
    assert json.loads(json_line(message_of(b"x")))["key"] is None


def test_values_of_all_types_become_json():
    value = {
        "raw": b"\xff",
        "at": datetime(2020, 1, 1, tzinfo=UTC),
        "id": UUID(int=1),
        "cost": Decimal("1.50"),
        "list": [None, True, 1.5],
        "other": 1j,
    }
    assert json.loads(value_in_json(value)) == {
        "raw": "/w==",
        "at": "2020-01-01T00:00:00Z",
        "id": "00000000-0000-0000-0000-000000000001",
        "cost": "1.50",
        "list": [None, True, 1.5],
        "other": "1j",
    }


def test_messages_without_a_schema_are_printed_unchanged():
    message = message_of(b"payload")
    batch = MessageBatch.of(message.topic, [message])
    assert RENDERERS[Output.TEXT, True](batch) == [b"payload\n"]
    [line] = RENDERERS[Output.JSON, True](batch)
    assert "without a schema" in json.loads(line)["value_error"]
    message = message_of(b"payload")
    message.location[0].decode = lambda payloads: [{"a": p.decode()} for p in payloads]
    batch = MessageBatch.of(message.topic, [message])
    assert RENDERERS[Output.TEXT, True](batch) == [b'{"a":"payload"}\n']
    said = json.loads(RENDERERS[Output.JSON, True](batch)[0])
    assert (said["value"], said["schema_id"]) == ({"a": "payload"}, 0)


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_value_nested_too_deeply_for_json_is_reported():
    message = message_of(b"payload")
    message.location[0].decode = lambda _: [_nested(5000)]
    batch = MessageBatch.of(message.topic, [message])
    assert RENDERERS[Output.TEXT, True](batch) == [b"payload\n"]
    [line] = RENDERERS[Output.JSON, True](batch)
    assert "value cannot be shown" in json.loads(line)["value_error"]


@pytest.mark.parametrize(
    ("byte_count", "count"), [(0, 0), (1, 0), (2, 1), (3, 1), (5, 2), (6, 3)]
)
def test_only_complete_lines_count_as_printed(byte_count, count):
    assert whole_lines([b"a\n", b"bc\n", b"\n"], byte_count) == count
