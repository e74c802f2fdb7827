"""Fields of messages by their paths."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.message_fields import FIELDS_MAX, parse_fields
from pydanube_cli.messages.message_table import MessageTable
from support.fakes.batches import messages_of

VALUE = b'{"user": {"name": "Ann"}, "amount": 5, "tags": ["a"], "key": 1, "none": null}'


def cells(columns, payload=VALUE):
    [message] = messages_of([payload], base=0, keys=[b"k"], attributes=[{"a.b": "x"}])
    return [each.cell(message) for each in parse_fields(columns)]


def test_paths_are_those_of_the_value_unless_they_name_another_part():
    assert cells("user.name, amount,tags[0],tags") == ["Ann", "5", "a", '["a"]']
    assert cells("key,value.key") == ["k", "1"]
    assert cells('attributes."a.b",value') == ["x", VALUE.decode().replace(" ", "")]


@pytest.mark.parametrize("payload", [VALUE, b"no JSON", b"[1]", b"\xff", b""])
def test_fields_that_a_message_does_not_have_are_empty(payload):
    assert cells("none,user.age,name[0]", payload) == ["", "", ""]


def test_control_characters_of_fields_are_escaped():
    assert cells("a", b'{"a": "\\u001b[31m"}') == ["\\x1b[31m"]


@pytest.mark.parametrize("columns", ["", "a,", "a..b", "a b", ",".join("a" * 51)])
def test_malformed_columns_are_refused(columns):
    assert FIELDS_MAX == 50
    with pytest.raises(InvalidRequest):
        parse_fields(columns)


def test_fields_are_columns_in_place_of_attributes_and_payload():
    fields = parse_fields("user.name,amount")
    table = MessageTable(has_topics=False, terminal_width=None, fields=fields)
    batch = messages_of([VALUE, b"x"], base=98, keys=[b"k", None])
    heading, _, *rows = b"".join(table(batch)).decode().splitlines()
    assert heading.split() == ["Offset", "Published", "Key", "user.name", "amount"]
    assert [row.split()[2:] for row in rows] == [["k", "Ann", "5"], ["\u2013"] * 2]
