"""Metrics from the HTTP port of a broker."""

from pydanube_console.administration.broker_metrics import select_metrics


def test_samples_are_selected_by_name_and_label():
    lines = ["# HELP a_total About x", 'a_total{topic="x"} 1', "b 2"]
    assert select_metrics(lines, "x") == ['a_total{topic="x"} 1']
    assert select_metrics(lines, "") == lines[1:]
