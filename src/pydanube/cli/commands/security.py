"""`danube security`: manages who may connect to a broker."""

from __future__ import annotations

from pydanube.cli import api_keys
from pydanube.cli.parameters import command_group

app = command_group(
    "Manage the API keys of clients.",
    "danube security keys create billing --expires 90d",
    "danube security keys list",
)

app.add_typer(api_keys.app, name="keys")


@app.callback()
def security() -> None:
    """Manage the API keys of clients."""
