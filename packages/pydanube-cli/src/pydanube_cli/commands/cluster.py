"""`danube cluster`: shows the state of a cluster of brokers."""

from __future__ import annotations

from pydanube.model.clusters import ClusterDescription
from pydanube_cli.commands.brokers import COLUMNS, NOT_CLUSTERED
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Result, Table

app = command_group(
    """
    Show the state of a cluster of brokers.

    A cluster divides its topics into shards. Each shard is served by one broker; if the
    broker fails, others take its shards over. See danube brokers to drain a broker.
    """,
    "danube cluster status",
)


@command(app, "danube cluster status", "danube cluster status --format json")
def status(connect: Connect) -> Result:
    """
    Show the brokers of the cluster, and whether all topics are served.

    The exit code is 1 if some topics are not served at this moment.
    """
    with connect() as client:
        found = client.cluster.describe()
    if not found.shard_count:
        return Result(found, NOT_CLUSTERED)
    return Result(
        found,
        Table.of(found.brokers, COLUMNS),
        _summary_of(found),
        exit_code=1 if found.unserved_count else 0,
    )


def _summary_of(cluster: ClusterDescription) -> str:
    if cluster.unserved_count:
        return (
            f"not served at this moment: {cluster.unserved_count} of "
            f"{cluster.shard_count} shards"
        )
    return f"all {cluster.shard_count} shards are served"
