"""The HTTP server over a whole broker of this process."""

from __future__ import annotations

from dataclasses import replace

from pydanube.model.errors import Draining, SessionLost
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.servers.connections.listeners import ListenerState, OpenListener
from pydanube_broker.servers.http.app import BrokerState
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from support.fakes.http_api import http_of
from support.fakes.shard_owners import KnownOwners


async def test_unknown_paths_and_methods_are_answered_with_json(api):
    assert (await api.get("/nothing", 404))["code"] == "not_found"
    refused = await api.ask("PUT", "/list_topics", status=405)
    assert refused["code"] == "invalid_request"


async def test_readiness_lists_the_problems_of_listeners(broker):
    listener = OpenListener(
        config=ListenerConfig(),
        state=ListenerState(port=1, problems=lambda: ["a client hangs"]),
    )
    state = BrokerState()
    state.on_serving(broker.broker, broker.server, (), listeners=[listener])
    async with http_of(state) as http:
        answer = (await http.get("/readyz")).json()
    assert answer == {"ready": True, "problems": ["a client hangs"]}


async def test_a_broker_whose_session_is_over_says_so_and_not_that_it_stops(broker):
    failures = []

    def check_session() -> None:
        if failures:
            raise failures[0]

    clustered = replace(broker.broker, shards=Shards(1, KnownOwners(check_session)))
    state = BrokerState()
    state.on_serving(clustered, broker.server, ())
    async with http_of(state) as http:
        assert (await http.get("/readyz")).status_code == 200
        failures.append(SessionLost("session s of this broker in the cluster is over"))
        state.on_stopping()
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "code": SessionLost.code,
        "message": str(failures[0]),
    }
    assert Draining.code != SessionLost.code
