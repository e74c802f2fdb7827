"""
Kafka clients that send requests in any order, with any values, and damaged ones.

The requests are made from the types of all messages that the listener answers.  Many
use the same few topics, groups and transactional ids, so that groups, transactions and
fetch sessions are met in all states.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydanube_kafka.wire.apis import VERSIONS, Api
from pydanube_kafka.wire.record_batches import Records, encode_batch
from support.drivers.kafka_any_requests import any_fields
from support.drivers.kafka_requests import KafkaRequests, request_bytes

if TYPE_CHECKING:
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 2
CLIENTS = 8
REQUESTS_MAX = 40
READ_TIMEOUT_S = 0.2
TEXTS = ("", "a", "b", "a.b", "g", "t", "PLAIN", "consumer", "é", "x" * 300, "/", "%s")
NUMBERS = (-2, -1, 0, 1, 2, 7)
PRODUCERS = (-1, 0, 7, 2**62)
_BYTES_MAX = 2_000_000


async def attack(target: Target, rng: Random) -> None:
    """Let clients send requests; then one behaves well and has to be served."""
    port = target.broker.kafka_port
    assert port is not None
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            sent = b"".join(_conversation(rng))
            tasks.create_task(_send(port, sent, rng.random() < 0.8))
    async with KafkaRequests(port) as raw:
        await raw.ask(
            Api.CREATE_TOPICS,
            5,
            topics=(_topic(raw, "check"),),
            timeout=timedelta(seconds=5),
            validate_only=False,
        )
        answer = await raw.produce("check", b"1")
        assert not answer.error_code, answer


def _topic(raw: KafkaRequests, name: str) -> Any:
    return raw.types(Api.CREATE_TOPICS, 5).CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(),
    )


def _conversation(rng: Random) -> list[bytes]:
    found = []
    for number in range(rng.randrange(REQUESTS_MAX)):
        api = rng.choice(list(Api))
        version = rng.randint(*VERSIONS[api])
        found.append(
            request_bytes(api, version, number, **any_fields(api, version, _Any(rng)))
        )
    return [
        struct.pack(">i", len(each)) + each
        for each in (_maybe_damaged(data, rng) for data in found)
    ]


class _Any:
    """Any values, many of them the same."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def count(self, name: str) -> int:
        return self._rng.choice((0, 1, 1, 1, 2, 3))

    def value(  # noqa: PLR0911
        self, name: str, kafka_type: str, *, may_be_none: bool
    ) -> Any:
        rng = self._rng
        if may_be_none and rng.random() < 0.3:
            return None
        if kafka_type.startswith(("int", "uint")):
            return self._number(name, kafka_type)
        match kafka_type:
            case "bool":
                return rng.random() < 0.5
            case "string":
                return rng.choice(TEXTS)
            case "bytes" | "records":
                return rng.choice((b"", b"\0", rng.randbytes(40), self._records()))
            case "uuid":
                return UUID(bytes=rng.randbytes(16))
        return timedelta(milliseconds=rng.choice((0, 1, 10, 2000, 2**31 - 1)))

    def _number(self, name: str, kafka_type: str) -> int:
        rng, bits = self._rng, int(kafka_type.removeprefix("u").removeprefix("int"))
        if "producer_id" in name:
            return rng.choice(PRODUCERS)
        found = rng.choice(NUMBERS if rng.random() < 0.9 else (2 ** (bits - 1) - 1,))
        return max(found, 0) if kafka_type.startswith("u") else found

    def _records(self) -> bytes:
        rng, count = self._rng, self._rng.randint(1, 4)
        data = encode_batch(
            Records(
                timestamps=[rng.choice((-1, 0, 10**13))] * count,
                keys=[rng.choice((None, b"k"))] * count,
                values=[rng.choice((None, b"", b"\0\0\0\0\1x", b"v" * 1000))] * count,
                headers=[()] * count,
            ),
            list(range(count)),
            producer_id=rng.choice(PRODUCERS),
            producer_epoch=rng.choice((-1, 0, 1)),
            base_sequence=rng.choice((-1, 0, 1, 2**31 - 1)),
            is_transactional=rng.random() < 0.3,
        )
        return _maybe_damaged(bytes(data), rng)


def _maybe_damaged(data: bytes, rng: Random) -> bytes:
    if not data or rng.random() > 0.05:
        return data
    damaged = bytearray(data)
    at = rng.randrange(len(damaged))
    damaged[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(damaged)


async def _send(port: int, sent: bytes, reads: bool) -> None:
    """Send everything at once; some clients never read what they are sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError, TimeoutError):
        writer.write(sent)
        async with asyncio.timeout(READ_TIMEOUT_S):
            await writer.drain()
            while reads and await reader.read(_BYTES_MAX):
                pass
    writer.transport.abort()
