"""The attack campaigns by name; ``make attack`` runs them in this order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from attack import (
    compressed_frames,
    damage,
    fuzz_grpc,
    fuzz_http,
    fuzz_kafka,
    fuzz_mqtt,
    fuzz_native,
    hostile_schemas,
    http2_abuse,
    random_bytes,
    slow_peers,
)

if TYPE_CHECKING:
    from attack.target import Target

Attack = Callable[["Target", Random], Awaitable[None]]
"""One round: attack the target, check it, raise AssertionError with the finding."""

CAMPAIGNS: dict[str, Attack] = {
    "hostile_schemas": hostile_schemas.attack,
    "http2_abuse": http2_abuse.attack,
    "fuzz_grpc": fuzz_grpc.attack,
    "fuzz_http": fuzz_http.attack,
    "fuzz_kafka": fuzz_kafka.attack,
    "fuzz_mqtt": fuzz_mqtt.attack,
    "random_bytes": random_bytes.attack,
    "compressed_frames": compressed_frames.attack,
    "fuzz_native": fuzz_native.attack,
    "slow_peers": slow_peers.attack,
    "damage": damage.attack,
}
