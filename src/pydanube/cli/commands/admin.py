"""`danube admin`: the administrative commands."""

from __future__ import annotations

from pydanube.cli.commands import admin_brokers, admin_namespaces, subscriptions, topics
from pydanube.cli.parameters import command_group

app = command_group(
    """
    Manage brokers, namespaces, topics and subscriptions.

    "danube topics" and "danube subscriptions" are short for "danube admin topics" and
    "danube admin subscriptions".
    """,
    "danube admin brokers list",
    "danube admin namespaces create shop",
    "danube admin topics create /shop/orders",
    "danube admin subscriptions pause /shop/orders -s billing",
)

app.add_typer(admin_brokers.app, name="brokers")
app.add_typer(admin_namespaces.app, name="namespaces")
app.add_typer(topics.app, name="topics")
app.add_typer(subscriptions.app, name="subscriptions")
