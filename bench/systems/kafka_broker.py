"""An Apache Kafka broker (KRaft, one node) for both clients."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.plan import WORKLOADS
from bench.servers import HOST, accepts, clean_environ, free_port, running
from bench.systems.system import BenchFailed, Server, Variant
from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME = "KAFKA_HOME"
"""The environment variable with Kafka's installation, which has libs/."""
JARS = "DANUBE_BENCH_KAFKA_JARS"
"""The environment variable with a directory of Kafka's jars and dependencies."""
CLUSTER = "YmVuY2gtYmVuY2gtYmVuYw"

VARIANTS = (
    Variant(
        name="flush-each",
        durability=Durability.SYNCED,
        setting="acks=all, log.flush.interval.messages=1, one node",
    ),
    Variant(
        name="default",
        durability=Durability.PAGE_CACHE,
        setting="acks=all, flushing left to the system (default), one node",
    ),
)


def find_jars() -> Path | None:
    """Return the directory with Kafka's jars; None if there is none."""
    named = [Path(os.environ[JARS])] if os.environ.get(JARS) else []
    named += [Path(os.environ[HOME]) / "libs"] if os.environ.get(HOME) else []
    for directory in named:
        if any(directory.glob("kafka_2.*.jar")):
            return directory
    return None


def missing_broker() -> str | None:
    """Return what to install or to set; None if a broker can be started."""
    told = []
    if find_jars() is None:
        told.append(
            "no broker is named: set KAFKA_HOME to an unpacked Kafka from "
            f"https://kafka.apache.org/downloads, or {JARS} to a directory of its jars"
        )
    if shutil.which("java") is None:
        told.append("there is no Java: apt-get install default-jre-headless")
    return "; ".join(told) or None


def broker_version() -> str:
    """Return the version of the jars."""
    jars = find_jars()
    for jar in jars.glob("kafka_2.*.jar") if jars else ():
        found = re.search(r"-(\d[\w.]*)\.jar$", jar.name)
        if found:
            return f"kafka {found[1]}"
    return "kafka"


@contextmanager
def serving(variant: Variant, directory: Path, workload: str) -> Iterator[Server]:
    """
    Run a broker with its defaults and the settings of *variant* while the body runs.

    Clients do not linger in latency workloads, as Kafka's documentation advises.
    """
    settings: dict[str, str] = {}
    if variant.durability is Durability.SYNCED:
        settings["log.flush.interval.messages"] = "1"
    port, jars = free_port(), find_jars()
    assert jars is not None
    with running(
        prepare(directory, port, jars, settings),
        directory / "log",
        is_ready=lambda: accepts(port),
        stop_with=signal.SIGKILL,
    ) as pid:
        lingers = not WORKLOADS[workload].shows_latency
        endpoint = {"address": f"{HOST}:{port}", "linger_ms": 5 if lingers else 0}
        yield Server(endpoint=endpoint, pids=(pid,))


def prepare(
    directory: Path, port: int, jars: Path, more: Mapping[str, str]
) -> list[str | Path]:
    """
    Write the files of a node that listens at *port*; return the command that runs it.

    *more* are further settings.
    """
    control = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{control}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{control}",
        "log.dirs": str(directory / "data"),
        # Settings of a single node.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Consumers need not wait for other members.
        "group.initial.rebalance.delay.ms": "0",
        # By default the offsets topic has 50 partitions, which are all opened first.
        "offsets.topic.num.partitions": "1",
        **more,
    }
    properties = directory / "server.properties"
    properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    java = _java(jars)
    _format(java, properties)
    return [*java, "kafka.Kafka", properties]


def _java(jars: Path) -> list[str | Path]:
    # The heap and the collector of Kafka's own start script.
    return [
        shutil.which("java") or "java",
        "-Xms1g",
        "-Xmx1g",
        "-server",
        "-XX:+UseG1GC",
        "-cp",
        f"{jars}/*",
    ]


def _format(java: list[str | Path], properties: Path) -> None:
    """Write the files that a node needs before it starts."""
    command = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]
    done = subprocess.run(  # noqa: S603  # Java, with what we name.
        [*command, properties],
        check=False,
        capture_output=True,
        text=True,
        env=clean_environ(),
        start_new_session=True,
    )
    if done.returncode:
        raise BenchFailed(f"Kafka cannot format its storage: {done.stdout[-1000:]}")
