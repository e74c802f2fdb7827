"""
Fixtures for pytest, which finds this module if pydanube is installed.

    def test_order_is_stored(danube_client):
        with danube_client.producer("/default/orders") as producer:
            producer.send(b"hello")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.extras import require

if TYPE_CHECKING:
    from pydanube.sync import Client
    from pydanube_broker.testing import SyncMemoryBroker


@pytest.fixture
def danube_broker_options() -> dict[str, Any]:
    """Return the options of ``danube_broker``; define a fixture of this name."""
    return {}


@pytest.fixture
def danube_broker(danube_broker_options: dict[str, Any]) -> Iterator[SyncMemoryBroker]:
    """
    Run an empty broker in memory, in a thread, while the test runs.

    ``pydanube.connect(danube_broker.url)`` connects to it, in any event loop.
    """
    require("broker", "the fixture danube_broker")
    # Imported here because pytest loads this module in every run.
    from pydanube_broker.testing import sync_memory_broker  # noqa: PLC0415

    with sync_memory_broker(**danube_broker_options) as broker:
        yield broker


@pytest.fixture
def danube_client(danube_broker: SyncMemoryBroker) -> Iterator[Client]:
    """Connect a ``pydanube.sync.Client`` to ``danube_broker``."""
    with danube_broker.connect() as client:
        yield client


@pytest.fixture
def danube_redirected(danube_broker: SyncMemoryBroker) -> Iterator[SyncMemoryBroker]:
    """Return ``danube_broker``, to which ``pydanube.connect`` of every URL connects."""
    with danube_broker.redirect():
        yield danube_broker
