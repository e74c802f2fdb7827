"""`danube export`: prints the definitions of a broker or a cluster."""

from __future__ import annotations

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.client.connections.requester import READ_RETRY_S
from pydanube_cli.administration.definitions.exporting import export_definitions
from pydanube_cli.administration.definitions.pure.document import (
    Definitions,
    encode_definitions,
)
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.output import print_line

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(app, "danube export", "danube export > definitions.json")
def export(*, url: parameters.Url = DEFAULT_URL) -> None:
    """
    Print the definitions of a broker or a cluster, as JSON.

    They are namespaces, schemas, topics with their settings and subscriptions, roles,
    bindings and stored connectors, as far as you may see them. Messages, positions of
    subscriptions, API keys and quotas are not among them: danube backup copies
    everything. danube import creates the same elsewhere.
    """

    async def work(_: Interruption) -> Definitions:
        async with connect(url, retry_s=READ_RETRY_S) as client:
            return await export_definitions(client)

    print_line(encode_definitions(run(work)).decode().rstrip())
