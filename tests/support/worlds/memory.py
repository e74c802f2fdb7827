"""A broker in memory, whose clients have Arrow or read and write batches without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

from pydanube.model import arrow
from pydanube_broker import testing
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.testing import MemoryBroker
from support.worlds.chance import Chance


@asynccontextmanager
async def memory_world(
    authenticator: Authenticator | None = None, **options: Any
) -> AsyncIterator[MemoryBroker]:
    """Run a broker; *authenticator* decides who its clients are."""
    async with testing.memory_broker(**options) as broker:
        if authenticator is not None:
            broker.server.authenticator = authenticator
        yield broker


@asynccontextmanager
async def without_arrow_world(
    _chance: Chance, **options: Any
) -> AsyncIterator[MemoryBroker]:
    """Run such a broker, which uses Arrow itself, while clients do not."""
    with mock.patch.object(arrow, "is_installed", return_value=False):
        async with memory_world(**options) as broker:
            yield broker
