"""Dead letters are valid, whatever the message was."""

from pydanube_connect.dead_letters import (
    ATTRIBUTES_BYTES_MAX,
    KEY_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    DeadLetters,
)


def letter(**given):
    found = DeadLetters()
    origin = {"x-original-topic": "/default/a"}
    fields = {"payload": b"x", "reason": "bad", "attributes": {}, "origin": origin}
    found.add(**{**fields, **given})
    [row] = found.batch().to_pylist()
    return row["payload"], row["key"], dict(row["attributes"] or ())


def test_dead_letter_has_the_origin_and_the_reason():
    payload, key, attributes = letter(key=b"k", attributes={"a": "b"})
    assert (payload, key) == (b"x", b"k")
    assert attributes == {
        "a": "b",
        "x-original-topic": "/default/a",
        "x-failure-reason": "bad",
    }


def test_attributes_that_are_invalid_become_text_and_null_is_none():
    given = {"half": "\ud800", "null": None, "number": 5, "bytes": b"\xff", "ü": "ü"}
    _, _, attributes = letter(attributes=given, reason="\ud800")
    assert attributes["half"] == attributes["x-failure-reason"] == "?"
    assert attributes["number"] == "5"
    assert attributes["bytes"] == "\ufffd"
    assert attributes["ü"] == "ü"
    assert "null" not in attributes


def test_dead_letter_is_small():
    payload, key, attributes = letter(
        payload=b"x" * (PAYLOAD_BYTES_MAX + 1),
        key=b"k" * (KEY_BYTES_MAX + 1),
        attributes={f"{at}": "v" * 10_000 for at in range(100)},
        reason="r" * 1_000_000,
    )
    assert len(payload) == PAYLOAD_BYTES_MAX
    assert attributes["x-original-bytes"] == str(PAYLOAD_BYTES_MAX + 1)
    assert key is None
    assert sum(map(len, attributes.values())) < ATTRIBUTES_BYTES_MAX + 2000
