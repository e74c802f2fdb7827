"""Brokers have numbers and addresses for Kafka clients."""

from __future__ import annotations

import pytest

from pydanube_kafka.pure.nodes import number_of, parse_address, shard_of


def test_numbers_are_those_of_the_protocol_and_differ():
    numbers = {number_of(f"broker-{number}") for number in range(100)}
    assert len(numbers) == 100
    assert all(0 < each < 2**31 for each in numbers)


def test_groups_are_spread_over_the_shards():
    assert {shard_of(f"g{number}", 8) for number in range(100)} == set(range(8))


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("host:1", ("host", 1)),
        ("host", ("host", 9)),
        ("[::1]:1", ("::1", 1)),
        ("[::1]", ("::1", 9)),
    ],
)
def test_addresses_may_lack_a_port(address, parsed):
    assert parse_address(address, 9) == parsed
