"""Messages that other systems, and programs that read them, tend to stumble over."""

from __future__ import annotations

import json

DEEP = 100_000
LONG = 70_000

PLAIN = b'{"id": "1", "key": "plain", "n": 1}'
"""A message that every connector can handle."""

PAYLOADS = {
    "empty": b"",
    "a space": b" ",
    "not UTF-8": b"\xff\xfe",
    "not UTF-8 in JSON": b'{"id": "a1", "a": "\xff"}',
    "null": b"null",
    "a number": b"1",
    "a text": b'"text"',
    "an array": b"[]",
    "an empty object": b"{}",
    "half of an object": b'{"id": "a2"',
    "NaN": b'{"id": "a3", "n": NaN}',
    "a number that is too large": b'{"id": "a4", "n": 1e999}',
    "a long number": b'{"id": "a5", "n": ' + b"9" * 400 + b"}",
    "half a character": b'{"id": "\\ud800", "key": "\\ud800"}',
    "a zero": b'{"id": "a6\\u0000", "key": "\\u0000", "a": "\\u0000", "n": 1}',
    "control characters": b'{"id": "a7", "key": "\\r\\nX: 1", "a": "\\r\\n\\u0007"}',
    "deep": b'{"id": "a8", "n": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep and open": b"[" * DEEP,
    "an empty id": b'{"id": "", "key": ""}',
    "a long id": json.dumps({"id": "x" * 300}).encode(),
    "a null id": b'{"id": null, "key": null, "a": null}',
    "an object as id": b'{"id": {"x": 1}, "key": {"x": 1}, "a": {"x": [1]}}',
    "a long key": json.dumps({"id": "a9", "key": "k" * LONG}).encode(),
    "a long attribute": json.dumps({"id": "a10", "a": "v" * LONG}).encode(),
    "an unknown field": b'{"id": "a11", "unknown": 1}',
    "another type": b'{"id": "a12", "n": "no number"}',
    "Debezium without payload": b'{"id": "a13", "schema": {}}',
    "large": json.dumps({"id": "a14", "a": "x" * 2_000_000}).encode(),
}
"""Payloads by what is awkward about them."""

KEYS = {
    "an empty key": b"",
    "a key with a zero": b"a\0b",
    "a key that is not UTF-8": b"\xff",
    "a key with a line break": b"a\r\nb",
    "a key with wildcards": b"a+#*>",
    "a key with a space": b"a b",
    "a key with slashes and dots": b"/a//b..c/",
    "a key of a system": b"$SYS/x",
    "a long key": b"k" * LONG,
    "a key of 300 bytes": b"k" * 300,
    "a key of 3,000 bytes": b"k" * 3000,
}
"""Keys of messages."""

ATTRIBUTES = {
    "an empty name": {"": "x"},
    "an empty value": {"x": ""},
    "a zero": {"x": "\0", "\0": "x"},
    "a line break": {"x": "a\r\nInjected: 1", "a\r\nb": "x"},
    "names of fields": {"payload": "x", "key": "x", "offset": "x", "id": "x"},
    "a trace that is none": {"traceparent": "x\r\nInjected: 1"},
    "a command": {"Nats-Rollup": "all", "Nats-Msg-Id": "x"},
    "a long name": {"n" * 300: "x"},
    "a long value": {"x": "v" * LONG},
    "many": {f"name-{number}": "v" * 100 for number in range(2000)},
    "code points that are none": {"x": "\uffff", "\ufffe": "\x85"},
    "emoji": {"\U0001f600": "\U0001f600"},
}
"""Attributes of messages."""


async def publish(producer) -> int:
    """Publish a plain message, the awkward ones, and a plain one; their number."""
    await producer.send(PLAIN, key="first")
    for payload in PAYLOADS.values():
        await producer.send(payload, key="k")
    await producer.send(PLAIN)
    for key in KEYS.values():
        await producer.send(PLAIN, key=key)
        await producer.send(b"", key=key)
    for attributes in ATTRIBUTES.values():
        await producer.send(PLAIN, key="k", attributes=attributes)
    await producer.send(PLAIN, key="last")
    return 3 + len(PAYLOADS) + 2 * len(KEYS) + len(ATTRIBUTES)
