"""The limit of failed attempts to authenticate."""

from __future__ import annotations

from pydanube.security.failed_attempts import (
    ADDRESSES_MAX,
    ATTEMPTS_MAX,
    FailedAttempts,
)


def failed(count, address="192.0.2.1", now=0.0):
    attempts = FailedAttempts()
    for _ in range(count):
        attempts.add(address, now)
    return attempts


def test_an_address_has_some_attempts():
    assert failed(ATTEMPTS_MAX - 1).wait_s("192.0.2.1", 0.0) == 0
    assert failed(ATTEMPTS_MAX).wait_s("192.0.2.1", 0.0) == 1
    assert failed(ATTEMPTS_MAX).wait_s("192.0.2.1", 0.25) == 0.75
    assert failed(ATTEMPTS_MAX).wait_s("192.0.2.1", 1.0) == 0
    assert failed(ATTEMPTS_MAX).wait_s("192.0.2.2", 0.0) == 0


def test_limits_can_be_lower():
    attempts = FailedAttempts(attempts_max=2, attempts_per_s=0.5)
    for _ in range(2):
        assert attempts.wait_s("192.0.2.1", 0.0) == 0
        attempts.add("192.0.2.1", 0.0)
    assert attempts.wait_s("192.0.2.1", 0.0) == 2


def test_a_client_that_tries_again_regularly_is_not_limited():
    attempts = FailedAttempts()
    for now in range(1000):
        assert attempts.wait_s("192.0.2.1", now) == 0
        attempts.add("192.0.2.1", now)


def test_a_network_of_ipv6_counts_as_one_address():
    attempts = FailedAttempts()
    for n in range(ATTEMPTS_MAX):
        attempts.add(f"2001:db8:0:1::{n:x}", 0.0)
    assert attempts.wait_s("2001:db8:0:1:ffff::1", 0.0) > 0
    assert attempts.wait_s("2001:db8:0:2::1", 0.0) == 0
    assert len(attempts) == 1


def test_an_address_of_ipv4_has_one_form():
    attempts = failed(ATTEMPTS_MAX, "::ffff:192.0.2.1")
    assert attempts.wait_s("192.0.2.1", 0.0) > 0


def test_the_number_of_addresses_is_bounded():
    attempts = FailedAttempts()
    for n in range(ADDRESSES_MAX + 10):
        attempts.add(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}", 0.0)
    assert len(attempts) == ADDRESSES_MAX
    assert attempts.wait_s("in process", 0.0) == 0
