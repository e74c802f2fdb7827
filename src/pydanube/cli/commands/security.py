"""`danube security`: manages who may connect, and who may do what."""

from __future__ import annotations

from pydanube.cli import access, api_keys
from pydanube.cli.parameters import command_group

app = command_group(
    "Manage API keys, roles and bindings: who may connect, and do what.",
    "danube security keys create billing --expires 90d",
    "danube security bindings add user:billing consumer --on '/shop/*'",
    "danube security can user:billing consume /shop/orders",
    "danube security whoami",
)

app.add_typer(api_keys.app, name="keys")
app.add_typer(access.roles, name="roles")
app.add_typer(access.bindings, name="bindings")
access.add_commands(app)
