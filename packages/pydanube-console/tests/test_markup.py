"""Text becomes HTML in one place, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_console.pure.markup import (
    Column,
    address,
    code,
    element,
    facts,
    link,
    panel,
    table,
    text_of,
)

EVIL = "<script>alert('x')</script>\"&"


@given(st.text())
def test_text_contains_no_markup(text):
    shown = text_of(text)
    assert not set("<>\"'") & set(shown)


@pytest.mark.parametrize(
    "shown",
    [
        element("p", EVIL),
        element("p", "x", title=EVIL),
        link(EVIL, "/topic", name=EVIL),
        panel(EVIL, EVIL),
        facts([(EVIL, EVIL)]),
        table([Column(EVIL)], [[EVIL]], caption=EVIL),
        table([Column(EVIL)], [], caption=EVIL, empty=EVIL),
        code(EVIL),
    ],
)
def test_html_in_data_is_shown_as_text(shown):
    assert "<script" not in shown
    assert "alert('x')" not in shown


def test_address_has_the_parameters_that_are_given():
    assert address("/topic", name="/a/b c", tab="") == "/topic?name=/a/b%20c"
    assert address("/topic") == "/topic"


def test_control_characters_are_visible():
    assert text_of("a\x1b[2J\nb") == r"a\x1b[2J\nb"
    assert code("a\x1b\nb") == '<pre class="code">a\\x1b\nb</pre>'


def test_table_has_a_caption_and_heads_for_screen_readers():
    shown = table([Column("Lag", is_number=True)], [[3]], caption="Topics")
    assert '<caption class="sr-only">Topics</caption>' in shown
    assert '<th class="num" scope="col">Lag</th>' in shown
