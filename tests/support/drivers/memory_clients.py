"""A client without await, of a real broker that lives in memory."""

from contextlib import contextmanager

from support.worlds.current import sync_memory_broker


@contextmanager
def memory_client(**options):
    """The broker and the client run in one thread of their own."""
    with sync_memory_broker(**options) as broker, broker.connect() as client:
        yield client
