"""Tests of the report."""

import json

from bench.plan import Skip
from bench.report import headline, read, skip_sentence, to_json, to_markdown, to_text
from bench.rows import Run
from bench.run import Measurement, joined

MACHINE = {
    "cores": 2,
    "processor": "Some Core",
    "memory_gb": 24.7,
    "disk": "ext4 on /dev/vda",
    "system": "Linux 6.1",
    "python": "3.11.7",
    "fdatasync_us": 123.4,
    "copy_gb_s": 5.67,
    "load_before": 0.02,
}
SYNCED = "synced before acknowledgement"


def run(line, *, workload="publish", failure=None, round_=1, **figures):
    return Run(
        workload=workload,
        line=line,
        durability=SYNCED,
        setting=f"{line} as set",
        message_bytes=100,
        round=round_,
        messages=1_234_567,
        seconds=5.0,
        figures={} if failure else figures,
        failure=failure,
    )


def measurement(*runs, is_complete=True):
    return Measurement(
        machine=MACHINE,
        versions={"a": "a 1.0"},
        how={"a": "in batches"},
        seconds=5.0,
        rounds=2,
        skips=[Skip("c", "not installed"), Skip("a/x", "it cannot", ("shared",))],
        runs=list(runs),
        is_complete=is_complete,
    )


TWO = (
    run("a/x", per_second=2_345_678.0, mb_per_second=234.6, server_peak_mb=88.0),
    run("a/x", round_=2, per_second=2_000_000.0, mb_per_second=200.0),
    run("b/y", failure="3 of 5 messages came"),
)


def test_measurement_round_trips(tmp_path):
    whole = measurement(*TWO)
    file = tmp_path / "results.json"
    file.write_text(to_json(whole), encoding="utf-8")

    assert read(file) == whole


def test_figures_of_earlier_versions_are_read(tmp_path):
    told = json.loads(to_json(measurement(TWO[0])))
    figures = told["runs"][0]["figures"]
    figures["messages_per_s"] = figures.pop("per_second")
    file = tmp_path / "results.json"
    file.write_text(json.dumps(told), encoding="utf-8")

    assert read(file).runs == [TWO[0]]


def test_json_has_runs_and_rows():
    told = json.loads(to_json(measurement(*TWO)))

    assert len(told["runs"]) == 3
    assert told["rows"][0]["figures"]["per_second"] == {
        "median": 2_172_839.0,
        "low": 2_000_000.0,
        "high": 2_345_678.0,
    }


def test_page_has_machine_class_and_setting():
    page = to_markdown(measurement(*TWO), {("publish", SYNCED): "publish.png"})

    assert "2 cores (Some Core), 25 GB" in page
    assert "fdatasync of 400 appended bytes takes 123 µs" in page
    assert "| a | a 1.0 | in batches |" in page
    assert "### Synced before acknowledgement" in page
    assert "![Publish, synced before acknowledgement](publish.png)" in page
    assert "| a/x | a/x as set | 100 | 2.17 M (2.00 M to 2.35 M) |" in page
    assert "- c: not installed" in page


def test_failed_row_is_marked():
    for text in (to_markdown(measurement(*TWO), {}), to_text(measurement(*TWO))):
        assert "FAILED 1 of 1: 3 of 5 messages came" in text


def test_table_has_only_measured_columns():
    text = to_text(measurement(*TWO))

    assert "server peak MB" in text
    assert "client CPU" not in text
    assert "p99" not in text


def test_latencies_are_whole_microseconds():
    latency = run("a/x", workload="latency", p50_us=1234.5, p99_us=45678.9, max_us=9e6)

    assert "1,234 " in to_text(measurement(latency))
    assert "45,679" in to_text(measurement(latency))


def test_interrupted_measurement_is_marked():
    page = to_markdown(measurement(*TWO, is_complete=False), {})

    assert "ended early" in page


def test_run_is_one_line():
    assert headline(TWO[0]) == ("a/x, 100 B: 2,345,678 messages/s (1,234,567 messages)")
    assert headline(TWO[2]) == "b/y, 100 B: FAILED: 3 of 5 messages came"
    latency = run(
        "a/x", workload="steady-1k", p50_us=412.0, p99_us=1610.0, max_us=9000.0
    )
    assert headline(latency) == (
        "a/x, 100 B: p50 412 µs, p99 1,610 µs (1,234,567 messages)"
    )


def test_skip_names_its_workloads():
    assert skip_sentence(Skip("a/x", "it cannot", ("shared", "topics"))) == (
        "a/x (shared, topics): it cannot"
    )


def test_measurements_are_merged():
    one = measurement(TWO[0], is_complete=True)
    other = measurement(TWO[2], is_complete=False)
    other.versions = {"b": "b 2"}

    whole = joined([one, other])

    assert whole.runs == [TWO[0], TWO[2]]
    assert set(whole.versions) == {*one.versions, "b"}
    assert whole.skips == one.skips
    assert not whole.is_complete
    assert "b" not in one.versions
