"""A broker without servers, in a world that survives it."""

import pytest

from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld


@pytest.fixture
def world():
    """Return a journal, segments and metadata store in memory."""
    return BrokerWorld()


@pytest.fixture
async def broker(world, broker_options):
    """Run a broker of ``world``."""
    async with world.broker(**broker_options) as broker:
        yield broker


@pytest.fixture
def policy():
    """Return the policy of ``topic``."""
    return RELIABLE


@pytest.fixture
async def topic(broker, policy):
    """Create the topic that most tests use."""
    return await broker.topics.create(A_TOPIC, policy)
