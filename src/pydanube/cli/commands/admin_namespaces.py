"""`danube admin namespaces`: create, list, delete and limit namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm, run_with_client
from pydanube.cli.commands import limits
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_result,
    print_table,
)
from pydanube.cli.parameters import command_group, examples
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import NamespaceDescription

Namespace = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE", help="The namespace, for example shop.", show_default=False
    ),
]

app = command_group(
    "Create, list and delete namespaces, and set limits for their topics.",
    "danube admin namespaces create shop --set max_producers_per_topic=10",
    "danube admin namespaces list",
    "danube admin namespaces set-policies shop --set max_publish_rate=5000",
    "danube admin namespaces delete shop",
)


@app.command(
    epilog=examples(
        "danube admin namespaces create shop",
        "danube admin namespaces create shop --set max_message_size=1048576",
    )
)
def create(
    namespace: Namespace,
    *,
    settings: limits.Set = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists",
            help="Succeed if the namespace exists; its limits do not change.",
        ),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Create a namespace for topics."""
    policy = limits.with_settings(NamespacePolicy(), settings or [])

    async def call(client: Client) -> NamespaceDescription:
        await client.create_namespace(namespace, policy=policy, exist_ok=if_not_exists)
        return await client.describe_namespace(namespace)

    described = run_with_client(url, call)
    print_result(described, f"Namespace {described.namespace} exists.", output_format)


@app.command("list", epilog=examples("danube admin namespaces list"))
def list_(
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List the namespaces and their numbers of topics."""

    async def call(client: Client) -> list[NamespaceDescription]:
        names = await client.namespaces()
        return [await client.describe_namespace(name) for name in names]

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json(described)
    else:
        print_table(
            ("Namespace", "Topics"),
            ((each.namespace, each.topic_count) for each in described),
        )


@app.command(epilog=examples("danube admin namespaces delete shop --yes"))
def delete(
    namespace: Namespace,
    *,
    yes: parameters.Yes = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Delete a namespace that has no topics."""
    confirm(f"Delete the namespace {namespace}?", is_sure=yes)

    async def call(client: Client) -> None:
        await client.delete_namespace(namespace)

    run_with_client(url, call)
    print_result(
        {"namespace": namespace, "deleted": True},
        f"Namespace {namespace} is deleted.",
        output_format,
    )


@app.command(epilog=examples("danube admin namespaces policies shop --format json"))
def policies(
    namespace: Namespace,
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Show the limits of the topics of a namespace."""

    async def call(client: Client) -> NamespaceDescription:
        return await client.describe_namespace(namespace)

    _print_policy(run_with_client(url, call).policy, output_format)


@app.command(
    epilog=examples(
        "danube admin namespaces set-policies shop --set max_publish_rate=5000",
        "danube admin namespaces set-policies shop --set max_publish_rate=0",
    )
)
def set_policies(
    namespace: Namespace,
    *,
    settings: limits.Set = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Change the limits of the topics of a namespace.

    Limits that are not named do not change. Changes take effect at once; clients that
    are connected beyond a new limit stay connected. Topics with limits of their own
    keep them.
    """
    if not settings:
        raise InvalidRequest("no limit given; use --set NAME=NUMBER")

    async def call(client: Client) -> NamespacePolicy:
        known = (await client.describe_namespace(namespace)).policy
        policy = limits.with_settings(known, settings)
        await client.set_namespace_policy(namespace, policy)
        return policy

    _print_policy(run_with_client(url, call), output_format)


def _print_policy(policy: NamespacePolicy, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print_json(policy)
    else:
        print_fields(limits.limit_fields(policy))
