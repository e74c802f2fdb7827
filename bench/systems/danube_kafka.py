"""pydanube with its listener for Kafka clients, and confluent-kafka."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.packages import missing_of, versions_of
from bench.plan import WORKLOADS
from bench.servers import HOST, free_port
from bench.systems import danube
from bench.systems.kafka_confluent import ConfluentDriver
from bench.systems.system import Driver, Server, System, Variant
from pydanube.model.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class DanubeKafka(System):
    """pydanube, and the client of Kafka's C library."""

    name = "danube-kafka"
    title = "pydanube, confluent-kafka"
    client = "confluent-kafka"
    how = "as Apache Kafka with confluent-kafka"

    def variants(self) -> Sequence[Variant]:
        # Topics that Kafka clients create are durable.
        return danube.VARIANTS[:1]

    def missing(self) -> str | None:
        return missing_of(packages=("confluent-kafka",))

    def version(self) -> str:
        return f"pydanube {__version__}, {versions_of('confluent-kafka')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        port = free_port()
        listener = {"DANUBE_KAFKA__PORT": str(port)}
        with danube.serving(variant, directory, workload, listener) as server:
            lingers = not WORKLOADS[workload].shows_latency
            endpoint = {"address": f"{HOST}:{port}", "linger_ms": 5 if lingers else 0}
            yield Server(endpoint=endpoint, pids=server.pids)

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return ConfluentDriver(endpoint)


SYSTEM = DanubeKafka()
