"""`danube admin`: brokers, namespaces, and the commands of topics and subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.commands import brokers, limits, subscriptions, topics
from pydanube.cli.commands.retention import (
    check_actions,
    describe_retention,
    drops_shown,
    parse_retention,
)
from pydanube.cli.completion import complete_namespaces
from pydanube.cli.declaration import Connect, command, confirm
from pydanube.cli.output import Columns, Fields, Result, Table
from pydanube.cli.parameters import command_group
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy

app = command_group(
    """
    Manage brokers, namespaces, topics and subscriptions.

    "danube brokers", "danube topics" and "danube subscriptions" are short for "danube
    admin brokers", "danube admin topics" and "danube admin subscriptions".
    """,
    "danube admin brokers list",
    "danube admin namespaces create shop",
    "danube admin topics create /shop/orders",
    "danube admin subscriptions pause /shop/orders -s billing",
)

namespaces = command_group(
    "Create, list and delete namespaces, and set limits and retention of their topics.",
    "danube admin namespaces create shop --set max_producers_per_topic=10",
    "danube admin namespaces list",
    "danube admin namespaces set-policies shop --set max_publish_rate=5000",
    "danube admin namespaces set-retention shop --age 30d",
    "danube admin namespaces delete shop",
)

app.add_typer(brokers.app, name="brokers")
app.add_typer(namespaces, name="namespaces")
app.add_typer(topics.app, name="topics")
app.add_typer(subscriptions.app, name="subscriptions")

NAMESPACE: Columns = {
    "Namespace": "namespace",
    "Topics": "topic_count",
    "Retention": lambda namespace: describe_retention(namespace.retention),
}

Namespace = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE",
        help="The namespace, for example shop.",
        autocompletion=complete_namespaces,
        show_default=False,
    ),
]


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
    """List the namespaces with their numbers of topics and their retention."""
    with connect() as client:
        described = [
            client.describe_namespace(name) for name in client.namespaces.list()
        ]
    return Result(described, Table.of(described, NAMESPACE))


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
        client.namespaces.configure(namespace, policy=policy)
    return Result(policy, Fields(limits.limit_fields(policy)))


@command(
    namespaces,
    "danube admin namespaces set-retention shop --age 30d --size 100GiB",
    "danube admin namespaces set-retention shop --acknowledged --dry-run",
    "danube admin namespaces set-retention shop --none",
)
def set_retention(
    connect: Connect,
    namespace: Namespace,
    *,
    age: str | None = None,
    size: str | None = None,
    acknowledged: bool = False,
    none: bool = False,
    dry_run: bool = False,
    now: bool = False,
) -> Result:
    """
    Set which messages the topics of a namespace keep, at any time.

    It applies to topics without a retention of their own, also to existing ones. The
    options are those of "danube topics set-retention".

    Args:
        age (DURATION): Remove messages older than this, such as 12h or 7d.
        size (SIZE): Remove the oldest messages of each topic beyond this size, such as
            500MB or 10GiB.
        acknowledged: Remove messages that all subscriptions of their topic have
            acknowledged.
        none: Keep everything.
        dry_run: Change and remove nothing; list what would be removed now. Without
            another option, by the present retention.
        now: Remove the messages at once, and list them. Without another option, by the
            present retention.
    """
    check_actions(dry_run=dry_run, now=now)
    retention = parse_retention(age, size, acknowledged=acknowledged, none=none)
    if not (retention is not None or dry_run or now):
        raise InvalidRequest(
            "no retention given; use --age, --size, --acknowledged or --none"
        )
    with connect() as client:
        if dry_run:
            drops = client.plan_namespace_retention(namespace, retention)
            return Result(drops, *drops_shown(drops, are_planned=True))
        if retention is not None:
            client.namespaces.configure(namespace, retention=retention)
        drops = client.apply_namespace_retention(namespace) if now else []
        described = client.describe_namespace(namespace)
    return Result(
        {
            "namespace": described.namespace,
            "retention": described.retention,
            "drops": drops,
        },
        Fields.of(described, NAMESPACE),
        *(drops_shown(drops, are_planned=False) if now else ()),
    )
