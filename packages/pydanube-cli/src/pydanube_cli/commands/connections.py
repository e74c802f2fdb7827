"""`danube connections`: lists the connected clients, and closes connections."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.model.connections import ConnectionDescription
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_bytes, format_time
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Result, Table

app = command_group(
    """
    List the clients that are connected, and close connections.

    In a cluster, and of a broker with several processes, they are those of all.
    """,
    "danube connections list",
    "danube connections list --topic /shop/orders",
    "danube connections close 1764406800000000 --broker broker-1",
)


def _members(each: ConnectionDescription) -> str:
    named = [
        f"{member.subscription or 'producer'} of {member.topic}"
        for member in each.members
    ]
    further = each.member_count - len(each.members)
    return ", ".join([*named, f"{further} more"] if further else named)


def _bytes(count: int | None) -> str | None:
    return None if count is None else format_bytes(count)


COLUMNS: Columns = {
    "Id": lambda each: str(each.connection_id),
    "Broker": "broker_id",
    "Protocol": "listener",
    "Address": "address",
    "Client": "client",
    "Principal": "principal",
    "Since": lambda each: format_time(to_datetime(each.connection_id)),
    "Received": lambda each: _bytes(each.received_bytes),
    "Sent": lambda each: _bytes(each.sent_bytes),
    "Producers and subscriptions": _members,
}


@command(
    app,
    "danube connections list",
    "danube connections list --topic /shop/orders --format json",
    name="list",
)
def list_(connect: Connect, *, topic: str | None = None) -> Result:
    """
    List the clients that are connected, the oldest of each broker first.

    Received and sent are the stored sizes of messages since the connection was made,
    of native clients. A connection names its first 20 producers and consumers.

    Args:
        topic (TOPIC): Only connections that name this topic or partition.
    """
    with connect() as client:
        found = client.cluster.list_connections().connections
    shown = [
        each
        for each in found
        if topic is None or topic in {member.topic for member in each.members}
    ]
    return Result(shown, Table.of(shown, COLUMNS))


@command(
    app,
    "danube connections close 1764406800000000",
    "danube connections close 1764406800000000 --broker broker-1 --reason 'new limits'",
)
def close(
    connect: Connect,
    connection: Annotated[
        int,
        typer.Argument(
            metavar="ID",
            help="The id in danube connections list.",
            show_default=False,
        ),
    ],
    *,
    broker: str | None = None,
    reason: str = "",
) -> Result:
    """
    Close the connection of a client.

    Most clients connect again. To keep a client out, revoke its API key or remove its
    bindings first.

    Args:
        broker (BROKER): The broker that has the connection; in a cluster it is needed.
        reason (TEXT): The reason, for the client and for the broker's log.
    """
    with connect() as client:
        client.cluster.close_connection(connection, broker, reason=reason)
    return Result({"closed": connection}, f"Connection {connection} is closed.")
