"""
The client without ``await``, for threads and scripts.

    with pydanube.sync.connect("danube://127.0.0.1:6651") as client:
        with client.producer("/default/orders") as producer:
            producer.send(b"hello")

One thread runs the event loop; the objects of the client pass their calls to it and
wait.  Several threads may use them, each object from one thread at a time.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec

from pydanube.client import client as aio
from pydanube.client.blocking import blocking_scope, loop_thread
from pydanube.client.facades import (
    Consumer,
    DeadLetters,
    PartWriter,
    Pending,
    Producer,
    Staging,
    Transaction,
    TypedProducer,
)
from pydanube.client.sync_facades import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

__all__ = [
    "Client",
    "Consumer",
    "DeadLetters",
    "PartWriter",
    "Pending",
    "Producer",
    "Staging",
    "Transaction",
    "TypedProducer",
    "connect",
]

P = ParamSpec("P")


def _threaded(
    connect: Callable[P, AbstractAsyncContextManager[aio.Client]],
) -> Callable[P, AbstractContextManager[Client]]:
    """Return *connect* for a client whose event loop runs in a thread."""

    @wraps(connect)
    def connect_in_thread(
        *args: P.args, **kwargs: P.kwargs
    ) -> AbstractContextManager[Client]:
        scope = connect(*args, **kwargs)

        @contextmanager
        def connected() -> Iterator[Client]:
            with (
                loop_thread() as loop,
                loop.entered(scope, partial(Client, loop)) as client,
            ):
                yield client

        return blocking_scope(scope, connected())

    return connect_in_thread


connect = _threaded(aio.connect)
