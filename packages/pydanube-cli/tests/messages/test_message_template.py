"""Templates print the fields of messages, and point at their mistakes."""

import re

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.pure.message_template import FIELDS, MessageTemplate
from support.fakes.batches import messages_of


def printed(template, *, is_for_terminal=False, **options):
    options = {"keys": [b"k\xff"], "attributes": [{"a": "\u00fc"}], **options}
    batch = messages_of([b"\x1b{}"], base=41, **options)
    return MessageTemplate(template, is_for_terminal=is_for_terminal)(batch)


def test_each_letter_prints_a_field_unchanged():
    assert printed("%t|%o|%T") == [b"/default/orders|41|2023-11-14T22:13:20Z"]
    assert printed("%k|%v|%p|%s") == [b"k\xff|\x1b{}|\x1b{}|3"]
    assert printed("%a|%%") == [b'{"a": "\xc3\xbc"}|%']
    assert printed("".join(f"%{letter}" for letter in FIELDS))


def test_escapes_are_bytes():
    assert printed(r"\n\t\r\0\\\x00\xFf.") == [b"\n\t\r\0\\\x00\xff."]


def test_missing_key_is_empty():
    assert printed("%k,%a", keys=None, attributes=None) == [b",{}"]


def test_messages_cannot_affect_a_terminal():
    assert printed("\x1b[1m%p\n", is_for_terminal=True) == [b"\x1b[1m\\x1b{}\n"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("%o %q", "'%q' at character 4; it may have %t topic, %o offset"),
        ("100%", "'%' at character 4"),
        ("\\y", r"'\\y' at character 1; it may have \n, \t"),
        ("a\\x0", r"'\\x' at character 2"),
        ("a\\", r"'\\' at character 2"),
        ("%o" * 501, "1002 characters; at most 1000"),
    ],
)
def test_mistake_is_refused_with_its_position(template, said):
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        MessageTemplate(template, is_for_terminal=False)
