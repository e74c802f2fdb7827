"""Addresses of the own machine."""

from __future__ import annotations

import pytest

from pydanube.security.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_addresses_of_the_own_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"]
)
def test_other_addresses(host):
    assert not is_loopback(host)
