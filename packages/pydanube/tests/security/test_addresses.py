"""Addresses of the own machine."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.security.addresses import is_loopback, parse_listen


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_addresses_of_the_own_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"]
)
def test_other_addresses(host):
    assert not is_loopback(host)


def test_addresses_to_listen_on_are_parsed():
    assert parse_listen("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_listen("[::1]:9400") == ("::1", 9400)
    with pytest.raises(InvalidConfig):
        parse_listen(":9400")
