"""Messages are selected by key, attributes and value."""

import pytest

from pydanube.model.errors import InvalidPayload
from pydanube_cli.messages.message_selection import select_messages
from pydanube_cli.messages.pure.conditions import parse_conditions
from support.fakes.batches import messages_of


def selected(batch, *conditions):
    return list(select_messages(batch, parse_conditions(conditions)).offsets)


@pytest.fixture
def batch():
    return messages_of(
        [b'{"n": 1}', b"no JSON", b'{"n": 3}', b"\xff", b"[" * 5000],
        base=10,
        keys=[b"eu-1", b"eu-2", b"us-1", None, b"\xff"],
        attributes=[{"a": "1"}, None, {"a": "2"}, None, None],
    )


@pytest.mark.parametrize(
    ("conditions", "offsets"),
    [
        ((), [10, 11, 12, 13, 14]),
        (("key ~ 'eu-*'",), [10, 11]),
        (("key = null",), [13]),
        (("attributes.a != null",), [10, 12]),
        (("value.n >= 1",), [10, 12]),
        (("value.n >= 1", "key ~ 'us-?'"), [12]),
        (("value.missing = null",), [10, 12]),
        (("value.n = 2",), []),
    ],
)
def test_all_conditions_must_be_fulfilled(batch, conditions, offsets):
    assert selected(batch, *conditions) == offsets


def test_values_are_decoded_by_their_schemas(batch):
    def decode(payloads):
        if b"no JSON" in payloads:
            raise InvalidPayload("malformed")
        return [{"size": len(payload)} for payload in payloads]

    batch.slices[0][0].decode = decode
    assert selected(batch, "value.size > 1") == [10, 12, 14]
    assert selected(batch, "value.size = null") == []


def test_message_whose_schema_is_missing_has_no_value():
    batch = messages_of([b'{"n": 1}'], base=0, schema_id=5, schema_version=1)
    assert selected(batch, "value.n = 1") == []
