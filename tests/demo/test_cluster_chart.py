"""Tests of the chart of the cluster demo."""

import pytest

from examples.demo.cluster_chart import draw_cluster
from examples.demo.cluster_ledger import Failover, TopicLedger

pytestmark = pytest.mark.slow

FAILOVER = Failover(
    broker="one", killed_at=0.5, acknowledged_s=[1.0, 2.0], delivered_s=[1.5, 2.5]
)


@pytest.mark.parametrize("failovers", [[FAILOVER], []])
@pytest.mark.parametrize("count", [0, 5])
def test_chart_is_a_png_even_without_messages(tmp_path, failovers, count):
    topic = TopicLedger("/default/t")
    for number in range(count):
        topic.on_acknowledged(float(number), "one")
    path = tmp_path / "chart.png"
    draw_cluster(path, [topic], failovers, end=5.0, headline="x")
    assert path.read_bytes().startswith(b"\x89PNG")
