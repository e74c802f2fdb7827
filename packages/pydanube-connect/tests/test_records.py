"""The sizes of values, by which batches are bounded."""

import pytest

from pydanube_connect.pure.records import SCALAR_BYTES, size_of_value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"12345", 5),
        ("12345", 5),
        (7, SCALAR_BYTES),
        (None, SCALAR_BYTES),
        ({"name": "ada"}, 7),
        ({"a": [1, {"b": "xyz"}, ()]}, 1 + SCALAR_BYTES + 4),
    ],
)
def test_the_size_of_a_value_is_that_of_its_parts(value, size):
    assert size_of_value(value) == size


def test_a_deep_value_has_a_size():
    value = "x"
    for _ in range(100_000):
        value = [value]
    assert size_of_value(value) == 1
