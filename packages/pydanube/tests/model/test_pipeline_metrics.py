"""Conventions of the metrics of pipelines."""

from __future__ import annotations

import re

import pytest

from pydanube.model.metrics import METRICS, Metric, MetricKind
from pydanube.model.pipeline_metrics import PIPELINE_METRICS


def test_names_are_unique_among_all_metrics() -> None:
    names = [metric.name for metric in METRICS + PIPELINE_METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", PIPELINE_METRICS, ids=lambda metric: metric.name)
def test_declaration_follows_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"danube_pipeline_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.labels[0] == "pipeline"
    assert metric.help.endswith(".")
    if metric.unit in {"bytes", "seconds"}:
        assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")
