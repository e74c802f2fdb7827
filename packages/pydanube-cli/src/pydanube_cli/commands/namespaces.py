"""`danube namespaces`: manages namespaces, and the settings of their topics."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.client.operations.changes import changes_of
from pydanube.model.policy import NamespaceSettings
from pydanube.model.setting_documents import (
    document_of_pairs,
    namespace_document_of,
    with_namespace_document,
)
from pydanube_cli.administration.retention_drops import describe_retention, drops_shown
from pydanube_cli.administration.setting_changes import Set, changed, shown
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.completion import complete_namespaces
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Result, Table

app = command_group(
    "Create, list and delete namespaces, and set limits and retention of their topics.",
    "danube namespaces create shop",
    "danube namespaces list",
    "danube namespaces configure shop --set policy.max_publish_rate=5000",
    "danube namespaces configure shop --set retention.age=30d",
    "danube namespaces delete shop",
)

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
    app,
    "danube namespaces create shop",
    "danube namespaces create shop --if-not-exists",
)
def create(
    connect: Connect,
    namespace: Namespace,
    *,
    if_not_exists: bool = False,
) -> Result:
    """
    Create a namespace for topics.

    Args:
        if_not_exists: Succeed if the namespace exists; its settings do not change.
    """
    with connect() as client:
        client.namespaces.create(namespace, exist_ok=if_not_exists)
        described = client.namespaces.describe(namespace)
    return Result(described, f"Namespace {described.namespace} exists.")


@command(app, "danube namespaces list", name="list")
def list_namespaces(connect: Connect) -> Result:
    """List the namespaces with their numbers of topics and their retention."""
    with connect() as client:
        described = [
            client.namespaces.describe(name) for name in client.namespaces.list()
        ]
    return Result(described, Table.of(described, NAMESPACE))


@command(app, "danube namespaces delete shop --yes")
def delete(
    connect: Connect, namespace: Namespace, *, yes: parameters.Yes = False
) -> Result:
    """Delete a namespace that has no topics."""
    confirm(f"Delete the namespace {namespace}?", is_sure=yes)
    with connect() as client:
        client.namespaces.delete(namespace)
    return Result(
        {"namespace": namespace, "deleted": True}, f"Namespace {namespace} is deleted."
    )


@command(
    app,
    "danube namespaces configure shop",
    "danube namespaces configure shop --set policy.max_publish_rate=5000",
    "danube namespaces configure shop --set retention.age=30d --dry-run",
)
def configure(
    connect: Connect,
    namespace: Namespace,
    *,
    settings: Set = None,
    dry_run: bool = False,
) -> Result:
    """
    Show the settings of a namespace, or change them and show the old and new values.

    The settings are the names of limits as in policy.max_publish_rate, where 0 is no
    limit, retention.age, retention.size and retention.acknowledged. They apply at once
    to all topics of the namespace that have none of their own; clients that are
    connected beyond a new limit stay connected. Settings that are not named do not
    change. All changes are made together, or none of them.

    Args:
        dry_run: Only show what would change, and what a changed retention would remove
            now.
    """
    document = document_of_pairs(settings or [])
    with connect() as client:
        found = client.namespaces.describe(namespace)
        old = NamespaceSettings(policy=found.policy, retention=found.retention)
        before = namespace_document_of(old)
        if not settings:
            return shown(before)
        new = with_namespace_document(old, document)
        drops = None
        if dry_run and new.retention != old.retention:
            drops = client.namespaces.plan_retention(namespace, new.retention)
        return changed(
            namespace,
            before,
            namespace_document_of(new),
            lambda: client.namespaces.configure(namespace, **changes_of(old, new)),
            dry_run=dry_run,
            drops=drops,
        )


@command(
    app,
    "danube namespaces apply-retention shop --dry-run",
    "danube namespaces apply-retention shop",
)
def apply_retention(
    connect: Connect, namespace: Namespace, *, dry_run: bool = False
) -> Result:
    """
    Remove what the retention of the topics of a namespace does not keep, now.

    Args:
        dry_run: Remove nothing; list what would be removed now. "danube namespaces
            configure --dry-run" does the same for another retention.
    """
    with connect() as client:
        work = client.namespaces.apply_retention
        if dry_run:
            work = client.namespaces.plan_retention
        drops = work(namespace)
    return Result(drops, *drops_shown(drops, are_planned=dry_run))
