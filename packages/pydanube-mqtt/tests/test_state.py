"""Retained messages are written together, as far as the metadata store takes them."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import TransactionTooLarge
from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.state import StateWriter, load_retained
from support.fakes.memory_store import MemoryStore


class SmallStore(MemoryStore):
    """Takes transactions with at most *bytes_max* bytes of payloads."""

    def __init__(self, bytes_max):
        super().__init__()
        self.bytes_max = bytes_max

    async def transaction(self, conditions, operations):
        if sum(len(each.value.payload) for each in operations) > self.bytes_max:
            raise TransactionTooLarge("too large")
        return await super().transaction(conditions, operations)


@pytest.mark.parametrize("bytes_max", [100, 30, 10])
async def test_changes_that_are_too_large_together_are_divided(bytes_max):
    store = SmallStore(bytes_max)
    writer = StateWriter(store)
    failures = []
    for number in range(10):
        message = Message(f"devices/{number}", b"x" * (11 if number == 7 else 10))
        writer.retain(message, failures.append)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run())
        await writer.flush()
        running.cancel()
    refused = [each for each in failures if each is not None]
    assert len(failures) == 10
    assert len(refused) == (1 if bytes_max == 10 else 0)
    assert len(await load_retained(store)) == 10 - len(refused)
