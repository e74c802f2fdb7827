"""The JSON API over a broker in memory."""

import pytest

from support.fakes.http_api import Api, State, http_of


@pytest.fixture
async def api(broker, client):
    """Return a client of the API of ``broker``."""
    async with http_of(State(broker.broker)) as http:
        yield Api(http, client)
