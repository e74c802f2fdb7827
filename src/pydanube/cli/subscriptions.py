"""`danube subscriptions`: create, list, describe and delete subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import options
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
from pydanube.model.policy import Start, SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.client.client import Client
    from pydanube.model.descriptions import SubscriptionDescription, TopicDescription

Subscription = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        metavar="NAME",
        help="The subscription.",
        show_default=False,
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Create, list, describe and delete subscriptions.",
    epilog=examples(
        "danube subscriptions list /default/orders",
        "danube subscriptions describe /default/orders -s billing",
    ),
)


@app.command(
    epilog=examples(
        "danube subscriptions create /default/orders -s billing --from earliest",
        "danube subscriptions create /default/orders -s workers --type shared",
    )
)
def create(
    topic: options.Topic,
    *,
    subscription: Subscription,
    type: Annotated[  # noqa: A002  # The option's name.
        SubscriptionType,
        typer.Option(
            "--type",
            "-t",
            metavar="exclusive|failover|shared",
            help="How consumers share it: only one is let in; one works and others "
            "stand by; each message goes to one of them.",
        ),
    ] = SubscriptionType.EXCLUSIVE,
    start: Annotated[
        Start,
        typer.Option(
            "--from",
            metavar="earliest|latest",
            help="Where it begins: at the oldest message, or with what is published "
            "from now on.",
        ),
    ] = Start.LATEST,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Create a subscription that has no consumer yet.

    What is published from then on waits for its first consumer. Consumers create their
    subscription by themselves, too.
    """

    async def question(client: Client) -> SubscriptionDescription:
        await client.create_subscription(
            topic, subscription, type=type.value, start=start.value
        )
        return await client.describe_subscription(topic, subscription)

    description = ask(url, question)
    if answer_format is Format.JSON:
        print_json(description)
    else:
        print_line(f"{subscription} of {topic} begins at offset {description.cursor}.")


@app.command("list", epilog=examples("danube subscriptions list /default/orders"))
def list_(
    topic: options.Topic,
    *,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """List the subscriptions of a topic, with how far behind they are."""

    async def question(client: Client) -> TopicDescription:
        return await client.describe_topic(topic)

    subscriptions = ask(url, question).subscriptions
    if answer_format is Format.JSON:
        print_json(subscriptions)
    else:
        print_subscriptions(subscriptions)


@app.command(
    epilog=examples("danube subscriptions describe /default/orders -s billing")
)
def describe(
    topic: options.Topic,
    *,
    subscription: Subscription,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Describe a subscription: where it stands, and who consumes."""

    async def question(client: Client) -> SubscriptionDescription:
        return await client.describe_subscription(topic, subscription)

    description = ask(url, question)
    if answer_format is Format.JSON:
        print_json(description)
        return
    done_above = sum(end - base for base, end in description.done)
    print_facts(
        [
            ("Subscription", description.subscription),
            ("Type", description.type),
            ("Done up to offset", str(description.cursor)),
            ("Done above it", done_above),
            ("Backlog", description.backlog),
            ("In flight", description.in_flight),
            ("Consumers", ", ".join(description.consumers)),
        ]
    )


@app.command(
    epilog=examples("danube subscriptions delete /default/orders -s billing --yes")
)
def delete(
    topic: options.Topic,
    *,
    subscription: Subscription,
    yes: options.Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if somebody consumes from it.")
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Delete a subscription, and with it what it knows to be done."""
    confirm(f"Delete the subscription {subscription} of {topic}?", is_sure=yes)

    async def question(client: Client) -> None:
        await client.delete_subscription(topic, subscription, force=force)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "subscription": subscription, "deleted": True})
    else:
        print_line(f"{subscription} of {topic} is deleted.")


def print_subscriptions(subscriptions: Iterable[SubscriptionDescription]) -> None:
    """Print a table with a line for each of *subscriptions*."""
    print_table(
        ("Subscription", "Type", "Done up to", "Backlog", "In flight", "Consumers"),
        (
            (
                each.subscription,
                each.type,
                str(each.cursor),
                each.backlog,
                each.in_flight,
                len(each.consumers),
            )
            for each in subscriptions
        ),
    )
