"""The memory of partly received frames."""

from pydanube_broker.servers.connections.receive_memory import ReceiveMemory


class Connection:
    has_room = False

    def on_receive_room(self):
        self.has_room = True


def test_memory_is_granted_in_order_of_requests():
    memory = ReceiveMemory(100)
    first, second, third = Connection(), Connection(), Connection()
    assert memory.reserve(first, 60)
    assert not memory.reserve(second, 60)
    # It would fit, but other requests were first.
    assert not memory.reserve(third, 10)
    memory.release(first)
    assert second.has_room
    assert third.has_room
    assert memory.reserved_bytes == 70


def test_cancelled_request_lets_the_next_one_pass():
    memory = ReceiveMemory(100)
    first, second, third = Connection(), Connection(), Connection()
    memory.reserve(first, 60)
    memory.reserve(second, 60)
    memory.reserve(third, 40)
    assert memory.is_exhausted
    memory.release(second)
    assert third.has_room
    assert not memory.is_exhausted


def test_single_frame_always_gets_memory():
    memory = ReceiveMemory(100)
    assert memory.reserve(Connection(), 1000)
