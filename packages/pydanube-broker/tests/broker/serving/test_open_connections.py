"""Connections have numbers that no other connection of the broker gets."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_broker.broker.serving.open_connections import OpenConnections


class Ended(list):
    """A connection that notes why it ends."""

    end = list.append


def test_numbers_are_times_that_differ():
    times = iter([100, 100, 90, 200])
    connections = OpenConnections(lambda: next(times))
    numbers = [connections.add(Ended()) for _ in range(4)]
    assert numbers == [100, 101, 102, 200]


def test_pages_follow_each_other():
    connections = OpenConnections(lambda: 1)
    for _ in range(5):
        connections.add(Ended())
    connections.remove(3)
    assert [number for number, _ in connections.page(0, 2)] == [1, 2]
    assert [number for number, _ in connections.page(2, 9)] == [4, 5]
    assert connections.page(5, 9) == []
    assert len(connections) == 4


def test_connection_is_closed_with_the_reason():
    connections = OpenConnections(lambda: 1)
    number = connections.add(connection := Ended())
    connections.close(number, "new limits")
    assert connection == ["new limits"]
    connections.remove(number)
    connections.remove(number)
    with pytest.raises(InvalidRequest, match="no connection 1"):
        connections.close(number, "again")
