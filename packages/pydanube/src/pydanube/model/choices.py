"""The words that stand for the members of enumerations in calls of the client."""

from __future__ import annotations

from typing import Literal, TypeAlias

SubscriptionTypeName: TypeAlias = Literal[
    "exclusive", "failover", "shared", "key_shared"
]
AccessName: TypeAlias = Literal[
    "shared", "exclusive", "exclusive_wait", "exclusive_fence"
]
StartName: TypeAlias = Literal["earliest", "latest"]
DurabilityName: TypeAlias = Literal["durable", "written"]
CorruptionPolicyName: TypeAlias = Literal["stop", "skip"]
CompressionName: TypeAlias = Literal["lz4", "zstd"]
