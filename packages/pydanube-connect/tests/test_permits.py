"""Permits expire, and are bounded."""

from __future__ import annotations

from pydanube_connect.pure.permits import Permits


def test_permit_expires_unless_it_is_given_again():
    permits = Permits(10.0)
    assert not permits.has("/shop/a", 0.0)
    permits.add("/shop/a", 0.0)
    assert permits.has("/shop/a", 9.9)
    assert not permits.has("/shop/a", 10.0)
    permits.add("/shop/a", 10.0)
    assert permits.has("/shop/a", 19.9)


def test_only_the_most_recent_permits_are_kept():
    permits = Permits(10.0, 3)
    for number in range(5):
        permits.add("/shop/a", number)
        permits.add(f"/shop/{number}", number)
    assert len(permits) == 3
    found = ["/shop/2", "/shop/3", "/shop/a", "/shop/4"]
    assert [each for each in found if permits.has(each, 5.0)] == found[1:]
    permits.clear()
    assert not permits.has("/shop/a", 5.0)
