"""The command that measures a broker."""

from __future__ import annotations

from pydanube.declarations.commands import CommandSet

COMMANDS = CommandSet(
    package="pydanube_cli.commands",
    panels={
        "Trials": {
            "bench": "Measure throughput and latency on this machine.",
        },
    },
    uses_pandas=True,
)
