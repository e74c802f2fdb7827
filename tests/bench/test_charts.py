"""Tests of the charts."""

import pytest

from bench.charts import draw
from bench.rows import Run, rows_of
from pydanube_cli.bench.figures import Durability

PNG = b"\x89PNG\r\n\x1a\n"
LATENCY = {
    "p50_us": 300.0,
    "p90_us": 400.0,
    "p99_us": 900.0,
    "p999_us": 2e3,
    "max_us": 9e3,
}


def run(workload, line="danube/durable", *, durability=Durability.SYNCED, **options):
    told = {"message_bytes": 100, "round": 1, "figures": {}} | options
    return Run(workload=workload, line=line, durability=durability, setting="", **told)


@pytest.mark.slow
def test_each_workload_and_class_has_a_chart(tmp_path):
    throughput = {"per_second": 1e6}
    runs = [
        run("both", figures=throughput),
        run("both", message_bytes=65536, figures={"per_second": 900.0}),
        run("both", "redis/always", failure="3 of 5 came"),
        run("both", "redis/memory", durability=Durability.MEMORY, figures=throughput),
        run("steady-1k", figures=LATENCY),
        run("steady-1k", "nats/sync", failure="3 of 5 came"),
        run("shared", failure="3 of 5 came"),
    ]

    files = draw(rows_of(runs), tmp_path)

    assert files == {
        ("both", "synced before acknowledgement"): "both-synced.png",
        ("both", "memory"): "both-memory.png",
        ("steady-1k", "synced before acknowledgement"): "steady-1k-synced.png",
    }
    for name in files.values():
        assert (tmp_path / name).read_bytes().startswith(PNG)
