"""The load of shards: rates of whole intervals, smoothed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_broker.cluster.pure.load import SMOOTHING_S, LoadMeter, TopicTraffic
from pydanube_broker.metadata.cluster_records import ShardLoad


def traffic(byte_count: int, message_count: int = 0, **kwargs: int) -> TopicTraffic:
    return TopicTraffic(
        **{"shard": 3, **kwargs}, byte_count=byte_count, message_count=message_count
    )


def test_shard_has_a_load_after_a_whole_interval() -> None:
    meter = LoadMeter()
    assert meter.measure({1: traffic(500)}, [3], 10.0) == {}
    assert meter.measure({1: traffic(1500, 20)}, [3], 20.0) == {
        3: ShardLoad(bytes_per_s=100.0, messages_per_s=2.0)
    }
    assert meter.measure({}, [4], 30.0) == {}


def test_load_is_the_sum_of_the_topics_of_a_shard() -> None:
    meter = LoadMeter()
    meter.measure({}, [3, 4], 0.0)
    topics = {
        1: traffic(100, connections=2, tail_bytes=7),
        2: traffic(200, connections=3, tail_bytes=8),
        3: traffic(400, shard=4),
        4: traffic(800, shard=5),
    }
    assert meter.measure(topics, [3, 4], 10.0) == {
        3: ShardLoad(bytes_per_s=30.0, connections=5, tail_bytes=15),
        4: ShardLoad(bytes_per_s=40.0),
    }


def test_topic_that_was_opened_again_counts_from_zero() -> None:
    meter = LoadMeter()
    meter.measure({1: traffic(900, 9)}, [3], 0.0)
    found = meter.measure({1: traffic(100, 1)}, [3], 10.0)
    assert found[3].bytes_per_s == 10.0


def test_burst_counts_by_its_length() -> None:
    meter = LoadMeter()
    meter.measure({1: traffic(0)}, [3], 0.0)
    meter.measure({1: traffic(0)}, [3], SMOOTHING_S)
    burst = meter.measure({1: traffic(3_000_000)}, [3], SMOOTHING_S + 3.0)[3]
    # A tenth of the time after which it would have 63 % of the weight.
    assert burst.bytes_per_s == pytest.approx(95_163, rel=0.01)
    later = meter.measure({1: traffic(3_000_000)}, [3], 10 * SMOOTHING_S)[3]
    assert later.bytes_per_s < 100


@given(
    st.integers(0, 10**9),
    st.lists(st.floats(1.0, 60.0), min_size=2, max_size=20),
)
def test_steady_rate_is_reported_as_it_is(rate: int, intervals: list[float]) -> None:
    meter, now = LoadMeter(), 0.0
    meter.measure({1: traffic(0)}, [3], now)
    for interval in intervals:
        now += interval
        found = meter.measure({1: traffic(int(rate * now))}, [3], now)
        assert found[3].bytes_per_s == pytest.approx(rate, rel=1e-3, abs=3.0)
