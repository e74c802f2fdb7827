"""The commands that try and measure the whole system."""

from __future__ import annotations

from pydanube.declarations.commands import CommandSet

COMMANDS = CommandSet(
    package="pydanube.cli.commands",
    panels={
        "Trials": {
            "demo": "Run a demonstration of the whole system on real data.",
            "bench": "Measure throughput and latency on this machine.",
        },
    },
    uses_pandas=True,
)
