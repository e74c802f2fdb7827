"""Conventions of the metrics of connectors."""

from __future__ import annotations

import re

import pytest

from pydanube.model.connector_metrics import CONNECTOR_METRICS
from pydanube.model.metrics import METRICS, Metric, MetricKind
from pydanube.model.pipeline_metrics import PIPELINE_METRICS


def test_names_are_unique_among_all_metrics() -> None:
    names = [each.name for each in METRICS + PIPELINE_METRICS + CONNECTOR_METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", CONNECTOR_METRICS, ids=lambda metric: metric.name)
def test_declaration_follows_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"danube_connector_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.help.endswith(".")
