"""The commands of connectors and replication."""

from __future__ import annotations

from pydanube.declarations.commands import CommandSet

COMMANDS = CommandSet(
    package="pydanube_connect.commands",
    panels={
        "Connectors": {
            "connect": "Run connectors, which publish what other systems have, or "
            "write messages to them.",
            "replicate": "Mirror topics to another broker or cluster, and let it take "
            "over.",
        },
    },
)
