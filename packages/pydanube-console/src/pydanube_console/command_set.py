"""The commands of the web console and of the MCP server."""

from __future__ import annotations

from pydanube.declarations.commands import CommandSet

COMMANDS = CommandSet(
    package="pydanube_console.commands",
    panels={
        "Console": {
            "console": "Serve the web console for browsers.",
            "mcp": "Run an MCP server, with which an AI assistant inspects brokers.",
        },
    },
)
