"""How long servers ask their clients to wait, whatever they write."""

import pytest

from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.retry_after import (
    RETRY_AFTER_MAX_S,
    delay_asked_s,
    wait_asked_s,
)

NOW_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("-7", 0),
        ("nan", 0),
        ("9" * 5000, 0),
        ("soon", 0),
        ("Mon, 20 Nov 2023 19:12:08 -99999999999999999999", 0),
        ("Mon, 99999999999999999999 Nov 2023 19:12:08 GMT", 0),
    ],
)
def test_a_server_asks_in_seconds_or_with_a_time(text, seconds):
    assert wait_asked_s({"retry-after": text}, NOW_S) == seconds


def test_nothing_is_asked_without_the_header():
    assert wait_asked_s({}, NOW_S) == 0


def test_no_connector_waits_longer_than_the_most():
    assert delay_asked_s(Transient("busy", retry_after_s=1e9)) == RETRY_AFTER_MAX_S
    assert delay_asked_s(ValueError()) == 0
