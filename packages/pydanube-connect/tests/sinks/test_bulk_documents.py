"""Tests of the bodies and the answers of ``_bulk``."""

from types import SimpleNamespace

import msgspec
import pytest

from pydanube_connect.sinks.bulk_documents import (
    InvalidDocument,
    action_of,
    result_of,
)
from pydanube_connect.sinks.templates import IdSource


def message_of(payload, *, key=None, offset=7):
    key_bytes = key.encode() if isinstance(key, str) else key
    return SimpleNamespace(
        topic="/default/orders", offset=offset, payload=payload, key_bytes=key_bytes
    )


def lines_of(message, document_id=IdSource.KEY):
    text = action_of(message, "all-{topic}", document_id)
    assert text.endswith(b"\n")
    return [msgspec.json.decode(each) for each in text.splitlines()]


def test_a_message_is_created_under_its_offset():
    message = message_of(b'{\n"x": 1.50}')
    assert lines_of(message, IdSource.MESSAGE) == [
        {"create": {"_index": "all-orders", "_id": "/default/orders:7"}},
        {"x": 1.5},
    ]


def test_the_offset_is_the_version_of_a_key():
    where = {
        "_index": "all-orders",
        "_id": "a",
        "version": 7,
        "version_type": "external",
    }
    message = message_of(b'{"x":1}', key="a")
    assert lines_of(message) == [{"index": where}, {"x": 1}]
    message = message_of(b"", key="a")
    assert lines_of(message) == [{"delete": where}]


@pytest.mark.parametrize(
    ("payload", "key", "reason"),
    [
        (b"[1]", "a", "not a JSON object"),
        (b"\xff", "a", "not a JSON object"),
        (b"{}", None, "has no key"),
        (b"{}", "", "has no key"),
        (b"{}", b"\xff", "not UTF-8"),
        (b"{}", "k" * 513, "longer than 512 bytes"),
    ],
)
def test_messages_that_are_no_documents_are_refused(payload, key, reason):
    message = message_of(payload, key=key)
    with pytest.raises(InvalidDocument, match=reason):
        action_of(message, "orders", IdSource.KEY)


def answer(status, kind=None, action="index"):
    error = {} if kind is None else {"error": {"type": kind, "reason": "r"}}
    return {action: {"status": status, **error}}


def test_answers_are_told_apart_by_what_to_do():
    result = result_of(
        [
            answer(201),
            answer(409, "version_conflict_engine_exception"),
            answer(404, action="delete"),
            answer(400, "mapper_parsing_exception"),
        ]
    )
    reason = "the server answers 400: mapper_parsing_exception: r"
    assert result.rejected == {3: reason}
    assert (result.is_busy, result.failure) == (None, None)
    busy = result_of([answer(429, "es_rejected_execution_exception")])
    assert "429" in busy.is_busy
    assert "503" in result_of([answer(503, "unavailable_shards_exception")]).is_busy
    blocked = result_of([answer(403, "cluster_block_exception")])
    assert "cluster_block_exception" in blocked.failure
