"""A client without await, of a real broker that lives in memory."""

from contextlib import contextmanager

from pydanube import sync
from pydanube.client.blocking import loop_thread
from pydanube.testing import memory_broker


@contextmanager
def memory_client(**options):
    """The broker and the client run in one thread of their own."""
    with (
        loop_thread() as loop,
        loop.entered(memory_broker(**options)) as broker,
        loop.entered(broker.connect()) as client,
    ):
        yield sync.Client(loop, client)
