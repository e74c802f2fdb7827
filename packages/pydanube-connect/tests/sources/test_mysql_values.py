"""Values of MySQL's log and rows become JSON without the limits of Python's types."""

import io
import struct

import pytest

from pydanube_connect.sources.mysql_values import (
    decoded_text,
    log_date,
    log_timestamp,
    read_datetime,
    read_decimal,
    read_time,
    row_decoder,
    shortest_single,
)


def reader(data):
    return io.BytesIO(bytes.fromhex(data)).read


@pytest.mark.parametrize(
    ("data", "digits", "text"),
    [
        ("800000", 0, "00:00:00"),
        ("b46efb", 0, "838:59:59"),
        ("4b9105", 0, "-838:59:59"),
        ("7fffffce", 1, "-00:00:00.500000"),
        ("7ffffffffff0", 6, "-00:00:00.000016"),
    ],
)
def test_time_has_its_sign_and_its_fraction(data, digits, text):
    assert read_time(reader(data), digits) == text


def test_dates_that_python_does_not_have():
    assert log_date(0) == "0000-00-00"
    assert log_date(2024 << 9 | 15) == "2024-00-15"
    assert read_datetime(reader("8000000000"), 0) == "0000-00-00T00:00:00"
    assert log_timestamp(0, 0) == "0000-00-00T00:00:00"
    assert log_timestamp(2**32 - 1, 5) == "2106-02-07T06:28:15.000005"


@pytest.mark.parametrize(
    ("data", "precision", "decimals", "text"),
    [
        ("8001", 4, 0, "1"),
        ("800000", 4, 2, "0.00"),
        ("7ffeff", 6, 2, "-1.00"),
        # The example of MySQL's documentation.
        ("810dfb38d204d2", 14, 4, "1234567890.1234"),
        ("7ef204c72dfb2d", 14, 4, "-1234567890.1234"),
    ],
)
def test_decimals_keep_their_digits(data, precision, decimals, text):
    assert read_decimal(reader(data), precision, decimals) == text


@pytest.mark.parametrize(
    "value", [0.0, 0.1, 1.1, 16777216.0, 3.4028235e38, -1e-45, 12345.67]
)
def test_singles_are_the_shortest_number_that_is_stored_as_the_same(value):
    stored = struct.unpack("<f", struct.pack("<f", value))[0]
    found = shortest_single(stored)
    assert struct.pack("<f", found) == struct.pack("<f", stored)
    assert len(repr(found)) <= len(repr(value))


def test_texts_have_the_character_set_of_their_column():
    assert decoded_text(b"caf\xe9\x80\x81", "latin1") == "café€\x81"
    assert decoded_text("žluť".encode("utf-16-be"), "ucs2") == "žluť"
    assert decoded_text(b"a\xff", "unknown") == "a\ufffd"


@pytest.mark.parametrize(
    ("kind", "value", "json"),
    [
        ("year", "0000", 0),
        ("datetime", "0000-00-00 00:00:00", "0000-00-00T00:00:00"),
        ("datetime", "2024-02-29 12:00:00.500", "2024-02-29T12:00:00.500000"),
        ("time", "-838:59:59.000", "-838:59:59"),
        ("decimal", "-0.0000000001", "-0.0000000001"),
        ("bit", b"\x02\x01", 513),
        ("set", "", ""),
        ("binary", b"\x00\xff", "00ff"),
        ("float", "0.10000000149011612", 0.1),
        ("json", '{"a": null}', {"a": None}),
    ],
)
def test_rows_have_what_the_server_prints(kind, value, json):
    assert row_decoder(kind)(value) == json
