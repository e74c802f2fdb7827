"""A cluster of two brokers in this process."""

import pytest

from support.fakes.served_clusters import ServedCluster


@pytest.fixture
async def cluster():
    """Run the brokers that ``danube://a`` and ``danube://b`` reach."""
    async with ServedCluster().running("a", "b") as cluster:
        yield cluster
