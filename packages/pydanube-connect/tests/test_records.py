"""The sizes of values, by which batches are bounded."""

import datetime

import pytest

from pydanube_connect.pure.records import SCALAR_BYTES, size_of_value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"12345", 5),
        ("12345", 5),
        (7, 1),
        ({"name": "ada"}, len('{"name":"ada"}')),
        ({"at": datetime.date(2026, 1, 2)}, len('{"at":"2026-01-02"}')),
        # These are not JSON.
        (object(), SCALAR_BYTES),
        ({"a": [object(), {"b": "xyz"}, ()]}, 1 + SCALAR_BYTES + 4),
        ({"text": "\ud800"}, 5),
    ],
)
def test_the_size_of_a_value_is_that_of_its_json_or_of_its_parts(value, size):
    assert size_of_value(value) == size


def test_a_deep_value_has_a_size():
    value = "x"
    for _ in range(100_000):
        value = [value]
    assert size_of_value(value) == 1
