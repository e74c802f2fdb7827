"""`danube admin brokers`: list and describe brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_table,
    to_json_value,
)
from pydanube.cli.parameters import command_group, examples
from pydanube.client.client import DEFAULT_URL

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import BrokerDescription

app = command_group(
    "List and describe brokers.",
    "danube admin brokers list",
    "danube admin brokers describe",
)


@app.command("list", epilog=examples("danube admin brokers list --format json"))
def list_(
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List the brokers. A broker runs alone, so the list has one entry."""

    async def call(client: Client) -> BrokerDescription:
        return await client.describe_broker()

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json([described])
    else:
        print_table(
            ("Broker", "URL", "Version"),
            [(described.broker_id, described.url, described.version)],
        )


@app.command(epilog=examples("danube admin brokers describe"))
def describe(
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Describe the broker: its version, addresses and contents."""

    async def call(client: Client) -> tuple[BrokerDescription, int, int]:
        namespaces = await client.namespaces()
        topics = await client.topics()
        return await client.describe_broker(), len(namespaces), len(topics)

    described, namespace_count, topic_count = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        counts = {"namespace_count": namespace_count, "topic_count": topic_count}
        print_json(to_json_value(described) | counts)
        return
    print_fields(
        [
            ("Broker", described.broker_id),
            ("URL", described.url),
            ("Version", described.version),
            ("Namespaces", namespace_count),
            ("Topics", topic_count),
        ]
    )
