"""A client without await, of a real broker that lives in memory."""

from contextlib import contextmanager

from pydanube.client import sync
from pydanube.testing import memory_broker


@contextmanager
def memory_client(**options):
    """The broker and the client run in one thread of their own."""
    with (
        sync._loop_thread() as loop,
        sync._entered(loop, memory_broker(**options)) as broker,
        sync._entered(loop, broker.connect()) as client,
    ):
        yield sync.Client(loop, client)
