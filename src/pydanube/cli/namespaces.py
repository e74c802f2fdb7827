"""`danube admin namespaces`: create, list and delete namespaces, and limit topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import limits, options
from pydanube.cli.answers import (
    Format,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.options import examples
from pydanube.cli.session import ask, confirm
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import NamespacePolicy

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import NamespaceDescription

Namespace = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE", help="Its name, for example shop.", show_default=False
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Create, list and delete namespaces, and limit what their topics may take.",
    epilog=examples(
        "danube admin namespaces create shop --set max_producers_per_topic=10",
        "danube admin namespaces list",
        "danube admin namespaces set-policies shop --set max_publish_rate=5000",
        "danube admin namespaces delete shop",
    ),
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
            help="It is no error if it exists; then its limits stay as they are.",
        ),
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Create a namespace, which topics are created in."""
    policy = limits.changed(NamespacePolicy(), settings or [])

    async def question(client: Client) -> NamespaceDescription:
        await client.create_namespace(namespace, policy=policy, exist_ok=if_not_exists)
        return await client.describe_namespace(namespace)

    described = ask(url, question)
    if answer_format is Format.JSON:
        print_json(described)
    else:
        print_line(f"{described.namespace} is there.")


@app.command("list", epilog=examples("danube admin namespaces list"))
def list_(
    *,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """List the namespaces, with how many topics they have."""

    async def question(client: Client) -> list[NamespaceDescription]:
        names = await client.namespaces()
        return [await client.describe_namespace(name) for name in names]

    described = ask(url, question)
    if answer_format is Format.JSON:
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
    yes: options.Yes = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Delete a namespace that has no topics."""
    confirm(f"Delete the namespace {namespace}?", is_sure=yes)

    async def question(client: Client) -> None:
        await client.delete_namespace(namespace)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"namespace": namespace, "deleted": True})
    else:
        print_line(f"{namespace} is deleted.")


@app.command(epilog=examples("danube admin namespaces policies shop --format json"))
def policies(
    namespace: Namespace,
    *,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Show what the topics of a namespace may take at most."""

    async def question(client: Client) -> NamespaceDescription:
        return await client.describe_namespace(namespace)

    _print_policy(ask(url, question).policy, answer_format)


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
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Change what the topics of a namespace may take at most.

    What is not named stays as it is. It holds at once; whoever is connected beyond a
    new limit stays. Topics with limits of their own keep them.
    """
    if not settings:
        raise InvalidRequest("say which limit: --set NAME=NUMBER")

    async def question(client: Client) -> NamespacePolicy:
        known = (await client.describe_namespace(namespace)).policy
        policy = limits.changed(known, settings)
        await client.set_namespace_policy(namespace, policy)
        return policy

    _print_policy(ask(url, question), answer_format)


def _print_policy(policy: NamespacePolicy, answer_format: Format) -> None:
    if answer_format is Format.JSON:
        print_json(policy)
    else:
        print_facts(limits.facts_of(policy))
