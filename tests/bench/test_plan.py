"""Tests of the order of runs."""

from pathlib import Path

import pytest

from bench.plan import (
    QUICK,
    SIZES,
    WORKLOADS,
    Line,
    Skip,
    blocks,
    estimated_s,
    plan_lines,
    plan_trials,
)
from bench.systems import NAMES, find_system
from bench.systems.system import System, Variant
from pydanube_cli.bench.figures import Durability


class Fake(System):
    """A system of which only the words matter."""

    title = client = how = ""

    def __init__(self, name, *variants, missing=None):
        self.name = name
        self._variants = variants
        self._missing = missing

    def variants(self):
        return self._variants

    def missing(self):
        return self._missing

    def version(self):
        return "1.0"

    def serve(self, variant, directory, workload):
        raise NotImplementedError

    def driver(self, endpoint):
        raise NotImplementedError


SYNCED = Variant(name="safe", durability=Durability.SYNCED, setting="")
CACHED = Variant(name="fast", durability=Durability.PAGE_CACHE, setting="")
UNABLE = Variant(
    name="odd",
    durability=Durability.MEMORY,
    setting="",
    cannot={"shared": "nobody shares", "publish": "nobody shares"},
)


def lines(*systems):
    return plan_lines(systems, list(Durability))[0]


def test_rounds_are_interleaved_within_a_workload():
    a, b = lines(Fake("a", SYNCED), Fake("b", SYNCED))
    workloads = [WORKLOADS["publish"], WORKLOADS["latency"]]

    trials, _ = plan_trials([a, b], workloads, [100], 2)

    told = [(trial.workload.name, trial.line.name, trial.round) for trial in trials]
    assert told == [
        ("publish", "a/safe", 1),
        ("publish", "b/safe", 1),
        ("publish", "a/safe", 2),
        ("publish", "b/safe", 2),
        ("latency", "a/safe", 1),
        ("latency", "b/safe", 1),
        ("latency", "a/safe", 2),
        ("latency", "b/safe", 2),
    ]
    assert [workload.name for workload, _ in blocks(trials)] == ["publish", "latency"]


def test_each_system_is_tried_once_in_its_most_durable_class():
    found = lines(Fake("a", CACHED, SYNCED), Fake("b", CACHED))

    trials, _ = plan_trials(found, [WORKLOADS["publish"]], [100], 1, one_line=True)

    assert [trial.line.name for trial in trials] == ["a/safe", "b/fast"]


def test_quick_measurement_leaves_out_variations():
    left_out = {name: WORKLOADS[name].varies for name in {*WORKLOADS} - {*QUICK}}

    assert left_out["topics-small"] == "topics"
    assert {*left_out.values()} <= {*QUICK}


def test_quick_measurement_of_five_systems_is_planned_for_less_than_four_minutes():
    names = ("danube", "danube-grpc", "danube-kafka", "nats", "redis")
    found = lines(*(Fake(name, SYNCED) for name in names))
    workloads = [WORKLOADS[name] for name in QUICK]

    trials, _ = plan_trials(found, workloads, [100], 1, one_line=True)

    assert len(trials) == 6 * len(names) + 2
    assert estimated_s(trials, 0.5) < 240


def test_workload_of_some_systems_is_planned_for_these_only():
    found = lines(Fake("danube", SYNCED), Fake("other", SYNCED))

    trials, skips = plan_trials(found, [WORKLOADS["program"]], None, 1)

    assert [trial.line.name for trial in trials] == ["danube/safe"]
    assert skips == []


def test_lines_of_a_class_are_adjacent():
    found = lines(Fake("a", CACHED, SYNCED), Fake("b", SYNCED, CACHED))

    assert [line.name for line in found] == ["a/safe", "b/safe", "a/fast", "b/fast"]


def test_missing_systems_are_skipped_with_a_reason():
    found, skips = plan_lines([Fake("a", SYNCED, missing="install it")], [*Durability])

    assert found == []
    assert skips == [Skip("a", "install it")]


def test_unsupported_variants_are_skipped_with_a_reason():
    old = Variant(
        name="safe", durability=Durability.SYNCED, setting="", missing="too old"
    )

    found, skips = plan_lines([Fake("a", old, CACHED)], list(Durability))

    assert [line.name for line in found] == ["a/fast"]
    assert skips == [Skip("a/safe", "too old")]


def test_only_requested_classes_are_planned():
    found, skips = plan_lines([Fake("a", SYNCED, CACHED)], [Durability.PAGE_CACHE])

    assert [line.name for line in found] == ["a/fast"]
    assert skips == []


def test_unsupported_workload_is_reported_once():
    workloads = [WORKLOADS[name] for name in ("publish", "shared", "both")]

    trials, skips = plan_trials(lines(Fake("a", UNABLE)), workloads, [100], 3)

    assert {trial.workload.name for trial in trials} == {"both"}
    assert skips == [Skip("a/odd", "nobody shares", ("publish", "shared"))]


def test_requested_sizes_override_the_workload():
    line = lines(Fake("a", SYNCED))
    publish, steady = WORKLOADS["publish"], WORKLOADS["steady-20k"]

    trials, _ = plan_trials(line, [publish, steady], None, 1)
    assert [trial.sizes for trial in trials] == [SIZES, (100,)]

    trials, _ = plan_trials(line, [publish, steady], [100, 65536], 1)
    assert [trial.sizes for trial in trials] == [(100, 65536), (100,)]

    trials, _ = plan_trials(line, [steady], [65536], 1)
    assert trials == []


def test_estimate_grows_with_duration():
    trials, _ = plan_trials(lines(Fake("a", SYNCED)), [*WORKLOADS.values()], None, 1)

    assert estimated_s(trials, 5) > estimated_s(trials, 1) > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_system_is_documented(name):
    system = find_system(name)

    assert system.name == name
    assert system.how
    assert system.driver({"variant": "", "linger_ms": 0}).__doc__
    # Its settings may depend on the version that is installed.
    if name != "nats":
        for variant in system.variants():
            assert variant.setting
            assert set(variant.cannot) <= set(WORKLOADS)
            assert Line(system, variant).name == f"{name}/{variant.name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_system_is_one_file(name):
    from bench import systems

    file = Path(systems.__file__).with_name(f"{name.replace('-', '_')}.py")
    assert file.exists()
