"""JSON is readable: short values take one line, long ones are indented."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pydanube_cli.presentation.json_layout import WIDTH, lay_out_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=30,
)


def test_fields_of_a_record_are_on_a_line_each():
    text = {"name": "text", "type": ["null", "string"], "default": None}
    record = {"type": "record", "name": "Order", "fields": [text, {"name": "x" * 20}]}
    assert lay_out_json(record).splitlines() == [
        "{",
        '  "type": "record",',
        '  "name": "Order",',
        '  "fields": [',
        '    {"name": "text", "type": ["null", "string"], "default": null},',
        f'    {{"name": "{"x" * 20}"}}',
        "  ]",
        "}",
    ]


def test_text_stays_readable():
    assert lay_out_json({"doc": "Łódź"}) == '{"doc": "Łódź"}'


@given(values)
def test_layout_keeps_the_value_and_the_width(value):
    text = lay_out_json(value)
    assert json.loads(text) == value
    for line in text.splitlines():
        # Only a scalar may be too long to fit.
        assert len(line) <= WIDTH or line.rstrip(",").endswith(('"', *"0123456789"))
