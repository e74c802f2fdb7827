"""Numbers with units."""

import pytest

from pydanube.model.quantities import (
    BYTE_UNITS,
    DURATION_UNITS,
    SPARK_BYTE_UNITS,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "units", "number"),
    [
        ("90s", DURATION_UNITS, 90),
        (" 1.5 MIN ", DURATION_UNITS, 90),
        ("250ms", DURATION_UNITS, 0.25),
        ("17", BYTE_UNITS, 17),
        ("500MB", BYTE_UNITS, 500_000_000),
        ("1.5 kib", BYTE_UNITS, 1536),
        ("512kb", SPARK_BYTE_UNITS, 512 * 1024),
        ("2g", SPARK_BYTE_UNITS, 2 * 1024**3),
    ],
)
def test_quantities_are_numbers_times_their_unit(text, units, number):
    assert parse_quantity(text, units) == number


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "1,000s", "90", "5 parsecs"])
def test_other_texts_are_no_quantities(text):
    assert parse_quantity(text, DURATION_UNITS) is None


def test_infinite_numbers_are_no_quantities():
    assert parse_quantity("9" * 400, BYTE_UNITS) is None
