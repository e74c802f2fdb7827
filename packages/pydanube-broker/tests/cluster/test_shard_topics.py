import pytest

from pydanube.model.names import TopicName
from pydanube_broker.cluster.pure.shard_topics import shard_of

ORDERS = TopicName.parse("/default/orders")


@pytest.mark.parametrize(
    ("name", "shard"), [("/default/orders", 103), ("/default/A-1", 32)]
)
def test_shard_is_the_checksum_of_the_name(name: str, shard: int) -> None:
    assert shard_of(TopicName.parse(name), 256) == shard


def test_partitions_are_spread_over_the_shards() -> None:
    shards = {shard_of(ORDERS.partition(number), 256) for number in range(1000)}
    assert len(shards) > 240
