"""Tests of ``danube bench``."""

import json

import pytest

from support.drivers.commands import danube

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def measure(directory, *arguments):
    done = danube(
        *("bench", "--messages", "20000", "--data-dir", str(directory)),
        *("--format", "json", *arguments),
    )
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == []
    return json.loads(done.stdout)


def test_one_workload_is_measured(tmp_path):
    report = measure(tmp_path, "--workload", "publish")
    assert {row["workload"] for row in report["rows"]} == {"publish"}
    assert all(row["per_second"] > 0 for row in report["rows"])


@pytest.mark.soak
def test_bench_measures_throughput_and_latency(tmp_path):
    report = measure(tmp_path)

    assert report["machine"]["fdatasync_us"] > 0
    rows = report["rows"]
    assert {row["workload"] for row in rows} == {
        "publish",
        "end to end",
        "end to end, each message read",
        "end to end, 1 exclusive consumer",
        "end to end, 4 shared consumers",
        "end to end, 4 key-shared consumers",
        "consume a backlog",
        "consume a backlog, each message read",
        "send awaited in 100 tasks",
        "send_nowait one by one",
        "async for one by one",
        "publish to acknowledgement",
        "publish to receive",
        "gRPC publish, 1 at a time",
        "gRPC publish, 64 at a time",
        "gRPC receive and acknowledge",
    }
    for row in rows:
        assert row["durability"] in (
            "synced before acknowledgement",
            "page cache",
            "memory",
        )
        assert (row["per_second"] or row["p50_us"]) > 0


def test_unknown_workload_is_refused():
    done = danube("bench", "--workload", "nothing")
    assert done.returncode == 2
    assert "use one of" in done.stderr
