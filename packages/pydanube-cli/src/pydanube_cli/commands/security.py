"""`danube security`: manages API keys, roles, bindings and quotas."""

from __future__ import annotations

from pydanube_cli.administration import access, api_keys, quotas
from pydanube_cli.invocation.parameters import command_group

app = command_group(
    "Manage API keys, roles, bindings and quotas.",
    "danube security keys create billing --expires 90d",
    "danube security bindings add user:billing consumer --on '/shop/*'",
    "danube security can user:billing consume /shop/orders",
    "danube security whoami",
    "danube security quotas set user:billing --bytes-in 10MiB",
)

app.add_typer(api_keys.app, name="keys")
app.add_typer(access.roles, name="roles")
app.add_typer(access.bindings, name="bindings")
app.add_typer(quotas.app, name="quotas")
access.add_commands(app)
