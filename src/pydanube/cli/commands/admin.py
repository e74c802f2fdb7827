"""`danube admin`: brokers, namespaces, and the commands of topics and subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.commands import limits, subscriptions, topics
from pydanube.cli.declaration import Connect, command, confirm
from pydanube.cli.output import Fields, Result, Table, to_json_value
from pydanube.cli.parameters import command_group
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy

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

brokers = command_group(
    "List and describe brokers.",
    "danube admin brokers list",
    "danube admin brokers describe",
)

namespaces = command_group(
    "Create, list and delete namespaces, and set limits for their topics.",
    "danube admin namespaces create shop --set max_producers_per_topic=10",
    "danube admin namespaces list",
    "danube admin namespaces set-policies shop --set max_publish_rate=5000",
    "danube admin namespaces delete shop",
)

app.add_typer(brokers, name="brokers")
app.add_typer(namespaces, name="namespaces")
app.add_typer(topics.app, name="topics")
app.add_typer(subscriptions.app, name="subscriptions")

BROKER = {"Broker": "broker_id", "URL": "url", "Version": "version"}

Namespace = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE", help="The namespace, for example shop.", show_default=False
    ),
]


@command(brokers, "danube admin brokers list --format json", name="list")
def list_brokers(connect: Connect) -> Result:
    """List the brokers. A broker runs alone, so the list has one entry."""
    with connect() as client:
        described = client.describe_broker()
    return Result([described], Table.of([described], BROKER))


@command(brokers, "danube admin brokers describe", name="describe")
def describe_broker(connect: Connect) -> Result:
    """Describe the broker: its version, addresses and contents."""
    with connect() as client:
        counts = {
            "namespace_count": len(client.namespaces()),
            "topic_count": len(client.topics()),
        }
        described = client.describe_broker()
    return Result(
        to_json_value(described) | counts,
        Fields.of(described, BROKER),
        Fields(zip(("Namespaces", "Topics"), counts.values(), strict=True)),
    )


@command(
    namespaces,
    "danube admin namespaces create shop",
    "danube admin namespaces create shop --set max_message_size=1048576",
)
def create(
    connect: Connect,
    namespace: Namespace,
    *,
    settings: limits.Set = None,
    if_not_exists: bool = False,
) -> Result:
    """
    Create a namespace for topics.

    Args:
        if_not_exists: Succeed if the namespace exists; its limits do not change.
    """
    policy = limits.with_settings(NamespacePolicy(), settings or [])
    with connect() as client:
        client.create_namespace(namespace, policy=policy, exist_ok=if_not_exists)
        described = client.describe_namespace(namespace)
    return Result(described, f"Namespace {described.namespace} exists.")


@command(namespaces, "danube admin namespaces list", name="list")
def list_namespaces(connect: Connect) -> Result:
    """List the namespaces and their numbers of topics."""
    with connect() as client:
        described = [client.describe_namespace(name) for name in client.namespaces()]
    columns = {"Namespace": "namespace", "Topics": "topic_count"}
    return Result(described, Table.of(described, columns))


@command(namespaces, "danube admin namespaces delete shop --yes")
def delete(
    connect: Connect, namespace: Namespace, *, yes: parameters.Yes = False
) -> Result:
    """Delete a namespace that has no topics."""
    confirm(f"Delete the namespace {namespace}?", is_sure=yes)
    with connect() as client:
        client.delete_namespace(namespace)
    return Result(
        {"namespace": namespace, "deleted": True}, f"Namespace {namespace} is deleted."
    )


@command(namespaces, "danube admin namespaces policies shop --format json")
def policies(connect: Connect, namespace: Namespace) -> Result:
    """Show the limits of the topics of a namespace."""
    with connect() as client:
        policy = client.describe_namespace(namespace).policy
    return Result(policy, Fields(limits.limit_fields(policy)))


@command(
    namespaces,
    "danube admin namespaces set-policies shop --set max_publish_rate=5000",
    "danube admin namespaces set-policies shop --set max_publish_rate=0",
)
def set_policies(
    connect: Connect, namespace: Namespace, *, settings: limits.Set = None
) -> Result:
    """
    Change the limits of the topics of a namespace.

    Limits that are not named do not change. Changes take effect at once; clients that
    are connected beyond a new limit stay connected. Topics with limits of their own
    keep them.
    """
    if not settings:
        raise InvalidRequest("no limit given; use --set NAME=NUMBER")
    with connect() as client:
        known = client.describe_namespace(namespace).policy
        policy = limits.with_settings(known, settings)
        client.set_namespace_policy(namespace, policy)
    return Result(policy, Fields(limits.limit_fields(policy)))
