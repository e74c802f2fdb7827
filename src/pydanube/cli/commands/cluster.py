"""`danube cluster`: shows the brokers of a cluster, and drains them."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from pydanube.cli.declaration import Connect, command
from pydanube.cli.output import Columns, Result, Table
from pydanube.cli.parameters import command_group
from pydanube.cli.progress_line import progress_line
from pydanube.cli.quantities import format_time
from pydanube.model.clusters import BrokerMode, ClusterBroker, ClusterDescription
from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import to_datetime

POLL_INTERVAL_S = 0.2

app = command_group(
    """
    Show the brokers of a cluster, and drain them.

    A cluster divides its topics into shards. Each shard is served by one broker; if the
    broker fails, others take its shards over.
    """,
    "danube cluster status",
    "danube cluster drain broker-1 --reason 'new disk'",
    "danube cluster activate broker-1",
)

Broker = Annotated[
    str,
    typer.Argument(
        metavar="BROKER", help="Its name in danube cluster status.", show_default=False
    ),
]


def _state_of(broker: ClusterBroker) -> str:
    state = broker.mode.value if broker.url else f"{broker.mode.value}, stopped"
    return f"{state}, controller" if broker.is_controller else state


def _start_of(broker: ClusterBroker) -> str:
    if broker.started_at is None:
        return ""
    return format_time(to_datetime(broker.started_at))


COLUMNS: Columns = {
    "Broker": "broker_id",
    "URL": "url",
    "State": _state_of,
    "Shards": "shard_count",
    "Incoming": "incoming_count",
    "Zone": "zone",
    "Started": _start_of,
}


@command(app, "danube cluster status", "danube cluster status --format json")
def status(connect: Connect) -> Result:
    """
    Show the brokers of the cluster, and whether all topics are served.

    The exit code is 1 if some topics are not served at this moment.
    """
    with connect() as client:
        found = client.describe_cluster()
    if not found.shard_count:
        return Result(found, "this broker is not part of a cluster")
    return Result(
        found,
        Table.of(found.brokers, COLUMNS),
        _summary_of(found),
        exit_code=1 if found.unserved_count else 0,
    )


@command(app, "danube cluster drain broker-1 --reason 'new disk'")
def drain(
    connect: Connect, broker: Broker, *, reason: str = "", wait: bool = True
) -> Result:
    """
    Move all topics of a broker to other brokers, and give it no more.

    Publishers and consumers follow their topics. The broker stays drained when it
    restarts; see danube cluster activate.

    Args:
        reason: Why, for other people.
        wait (--wait/--no-wait): Whether to wait until the broker serves nothing.
    """
    with connect() as client:
        client.drain_broker(broker, reason=reason)
        if not wait:
            return Result({"broker": broker}, f"{broker} is draining")
        with progress_line("moving shards", is_shown=sys.stderr.isatty()) as show:
            while True:
                found = _find(client.describe_cluster(), broker)
                if found.mode is not BrokerMode.DRAINING:
                    break
                show(f"{found.shard_count} are left", found.shard_count)
                time.sleep(POLL_INTERVAL_S)
    if found.mode is BrokerMode.ACTIVE:
        raise InvalidRequest(f"{broker} was activated again meanwhile")
    return Result(found, f"{broker} is drained: it serves no topics")


@command(app, "danube cluster activate broker-1")
def activate(connect: Connect, broker: Broker, *, reason: str = "") -> Result:
    """
    Let a drained broker serve topics again; it gets its share soon.

    Args:
        reason: Why, for other people.
    """
    with connect() as client:
        client.activate_broker(broker, reason=reason)
    return Result({"broker": broker}, f"{broker} is active")


def _find(cluster: ClusterDescription, broker_id: str) -> ClusterBroker:
    for each in cluster.brokers:
        if each.broker_id == broker_id:
            return each
    # A drained broker is listed, also if it does not run.
    return ClusterBroker(broker_id=broker_id)


def _summary_of(cluster: ClusterDescription) -> str:
    if cluster.unserved_count:
        return (
            f"not served at this moment: {cluster.unserved_count} of "
            f"{cluster.shard_count} shards"
        )
    return f"all {cluster.shard_count} shards are served"
