"""A storage in memory with one log."""

import pytest

from support.fakes.storages import World, open_topic


@pytest.fixture
def world():
    """Return what survives ``storage``, and its clocks."""
    return World()


@pytest.fixture
def storage_config():
    """Return the settings of ``storage``; ``@using`` changes them."""
    return {}


@pytest.fixture
async def storage(world, storage_config):
    """Open a storage in ``world``."""
    async with world.storage(**storage_config) as storage:
        yield storage


@pytest.fixture
def policy():
    """Return the policy of ``log``."""
    return


@pytest.fixture
async def log(storage, policy):
    """Open the log of topic 1."""
    return await open_topic(storage, policy=policy)
