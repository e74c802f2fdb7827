"""`danube cluster`: shows the state of a cluster of brokers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pydanube.cli.commands.brokers import COLUMNS, NOT_CLUSTERED
from pydanube.cli.commands.demo import print_report
from pydanube.cli.declaration import Connect, command
from pydanube.cli.output import Result, Table, print_note
from pydanube.cli.parameters import command_group
from pydanube.model.clusters import ClusterDescription
from pydanube.model.extras import require

app = command_group(
    """
    Show the state of a cluster of brokers, or try one.

    A cluster divides its topics into shards. Each shard is served by one broker; if the
    broker fails, others take its shards over. See danube brokers to drain a broker.
    """,
    "danube cluster status",
    "danube cluster demo",
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


@command(
    app,
    "danube cluster demo",
    "danube cluster demo --kills 10 --topics 30",
)
def demo(
    *,
    kills: Annotated[int, typer.Option(min=1, max=1000)] = 3,
    topics: Annotated[int, typer.Option(min=1, max=200)] = 12,
    directory: Path | None = None,
    output: Path | None = None,
    etcd: str = "etcd",
) -> None:
    """
    Kill the brokers of a cluster in turn, and count what is lost.

    It starts etcd and three brokers on this machine, which share a directory as their
    object store, publishes to topics and consumes them, and shows which broker serves
    which topics. At the end it reads all topics and compares them with what was
    acknowledged. It needs the extra "demo" and the program etcd, and takes about ten
    seconds for each kill.

    Args:
        kills (COUNT): How many times a broker is killed and started again.
        topics (COUNT): The number of topics.
        directory (DIR): A new or empty directory for the data. By default a temporary
            directory that is removed at the end.
        output (DIR): The directory for the chart and the logs; by default demo-output.
        etcd (PROGRAM): The program of etcd.
    """
    require("demo", "the demo")
    from pydanube.demo import cluster_scenario  # noqa: PLC0415  # Needs the extra.

    with tempfile.TemporaryDirectory(prefix="danube-cluster-demo-") as temporary:
        try:
            report = cluster_scenario.run_cluster_demo(
                directory or Path(temporary),
                output or Path("demo-output"),
                etcd=etcd,
                kills=kills,
                topic_count=topics,
            )
        except KeyboardInterrupt:
            print_note("\nInterrupted; everything that was started is stopped.")
            raise
    print_report(report)


def _summary_of(cluster: ClusterDescription) -> str:
    if cluster.unserved_count:
        return (
            f"not served at this moment: {cluster.unserved_count} of "
            f"{cluster.shard_count} shards"
        )
    return f"all {cluster.shard_count} shards are served"
