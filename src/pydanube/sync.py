"""
pydanube without ``await``, for threads and scripts.

    with pydanube.sync.connect("danube://127.0.0.1:6651") as client:
        with client.producer("/default/orders") as producer:
            producer.send(b"hello")
"""

from __future__ import annotations

from pydanube.client.sync import (
    Client,
    Consumer,
    DeadLetters,
    PartWriter,
    Pending,
    Producer,
    Schemas,
    Staging,
    TypedProducer,
    connect,
)

__all__ = [
    "Client",
    "Consumer",
    "DeadLetters",
    "PartWriter",
    "Pending",
    "Producer",
    "Schemas",
    "Staging",
    "TypedProducer",
    "connect",
]
