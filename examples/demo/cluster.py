"""The demo of a cluster, whose brokers are killed in turn."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from examples.demo.cluster_scenario import run_cluster_demo
from examples.demo.reporting import print_report, run
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import print_note

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "python -m examples.demo.cluster",
    "python -m examples.demo.cluster --kills 10 --topics 30",
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
    acknowledged. It needs the program etcd, and takes about ten seconds for each kill.

    Args:
        kills (COUNT): How many times a broker is killed and started again.
        topics (COUNT): The number of topics.
        directory (DIR): A new or empty directory for the data. By default a temporary
            directory that is removed at the end.
        output (DIR): The directory for the chart and the logs; by default demo-output.
        etcd (PROGRAM): The program of etcd.
    """
    with tempfile.TemporaryDirectory(prefix="danube-cluster-demo-") as temporary:
        try:
            report = run_cluster_demo(
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


if __name__ == "__main__":
    run(app)
