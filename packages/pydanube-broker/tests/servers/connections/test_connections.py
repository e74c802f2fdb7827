"""A listener keeps the limit of its connections, together with other processes."""

from __future__ import annotations

from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of
from pydanube_broker.servers.connections.connections import ConnectionCounts


def counts_of_processes(listener, connections_max):
    memory = memoryview(bytearray(bytes_of(2)))
    return [
        ConnectionCounts(
            listener=listener,
            connections_max=connections_max,
            shared=SharedCounts(memory, number=number, count=2),
        )
        for number in (1, 2)
    ]


def test_connections_beyond_the_limit_are_refused_until_one_is_lost():
    counts = ConnectionCounts(listener="grpc", connections_max=1)
    assert counts.admit()
    assert not counts.admit()
    counts.lose()
    assert (counts.open_count, counts.refused_total) == (1, 1)
    counts.lose()
    assert counts.admit()


def test_processes_keep_one_limit():
    first, second = counts_of_processes("mqtt", 3)
    assert first.admit()
    assert first.admit()
    assert second.admit()
    assert not second.admit()
    second.lose()
    first.lose()
    assert second.admit()
    # Each reports its own connections.
    assert (first.open_count, second.open_count) == (1, 2)


def test_each_listener_has_a_limit_of_its_own():
    first, _ = counts_of_processes("grpc", 1)
    other = ConnectionCounts(listener="http", connections_max=1, shared=first.shared)
    assert first.admit()
    assert other.admit()
