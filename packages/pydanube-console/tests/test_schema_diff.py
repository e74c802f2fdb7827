"""Versions of schemas are compared line by line."""

from pydanube_console.pure.schema_diff import CHARACTERS_MAX, diff, pretty


def test_json_is_compared_by_its_members():
    shown = diff('{"a":1,"b":2}', '{"a":1,"c":"<b>"}').replace("&quot;", "'")
    assert """<span class="same">    'a': 1,</span>""" in shown
    assert """<span class="removed">-   'b': 2</span>""" in shown
    assert """<span class="added">+   'c': '&lt;b&gt;'</span>""" in shown


def test_other_definitions_stay_as_they_are():
    assert pretty("message A {}") == "message A {}"


def test_very_long_definitions_are_not_compared():
    assert "too long" in diff("x", "y" * (CHARACTERS_MAX + 1))
