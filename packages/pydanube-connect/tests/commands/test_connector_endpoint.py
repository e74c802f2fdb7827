"""The endpoint of connectors: health, metrics and status for all, control for one."""

import time

import pytest

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from pydanube.model.connector_metrics import CONNECTOR_METRICS
from pydanube.model.errors import Conflict, InvalidConfig
from pydanube_connect.commands.connector_endpoint import Endpoint, serving_endpoint
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.status import State
from support.drivers.connectors import declared

FILE = """
connectors:
  numbers: {kind: generator-source, topic: /default/numbers, unhealthy_after: 1m}
"""
TOKEN = {"Authorization": "Bearer sesame"}


@pytest.fixture
def runs():
    return ConnectorRuns(declared(FILE, "danube://127.0.0.1:1"), lambda _: None)


@pytest.fixture
def client(runs):
    return TestClient(Endpoint(runs, "sesame").app())


def test_health_is_bad_when_a_connector_has_failed(runs, client):
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"numbers": "starting"})
    runs.statuses[0].state = State.FAILED
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"numbers": "failed"})


def test_health_is_degraded_when_a_connector_has_retried_for_long(runs, client):
    [status] = runs.statuses
    assert status.unhealthy_after_s == 60.0
    now = time.time_ns() // 1000
    status.enter(State.RETRYING, now - 59_000_000)
    assert client.get("/health").json() == {"numbers": "retrying"}
    status.retrying_since -= 10_000_000
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"numbers": "degraded"})
    text = client.get("/metrics").text
    assert 'danube_connector_degraded{connector="numbers"' in text
    assert "\ndanube_connector_retrying_seconds{" in text


def test_every_metric_is_served(runs, client):
    runs.statuses[0].lag = 7
    runs.statuses[0].count_batch()
    text = client.get("/metrics").text
    labels = '{connector="numbers",kind="generator-source",topic="/default/numbers"}'
    for metric in CONNECTOR_METRICS:
        assert f"{metric.name}{labels} " in text


def test_status_has_the_counts(client):
    [found] = client.get("/status").json()
    assert (found["connector"], found["messages"]) == ("numbers", 0)


def test_control_needs_the_token_and_a_known_name_and_action(client):
    paths = {
        ("/connectors/numbers/pause", "Bearer other"): 401,
        ("/connectors/numbers/pause", ""): 401,
        ("/connectors/numbers/pause", "Bearer s\xe9same"): 401,
        ("/connectors/numbers/explode", TOKEN["Authorization"]): 404,
        ("/connectors/number/pause", TOKEN["Authorization"]): 404,
        ("/connectors/numbers/pause", TOKEN["Authorization"]): 200,
    }
    for (path, token), status in paths.items():
        headers = [(b"authorization", token.encode("latin-1"))]
        assert client.post(path, headers=headers).status_code == status, (path, token)
    assert client.get("/connectors/numbers/pause", headers=TOKEN).status_code == 405


async def test_an_address_that_is_taken_or_malformed_is_reported(runs):
    async with serving_endpoint(runs, "sesame", "127.0.0.1:0") as url:
        address = url.removeprefix("http://")
        with pytest.raises(Conflict, match=f"cannot be shown at {address}"):
            async with serving_endpoint(runs, "sesame", address):
                pass
    with pytest.raises(InvalidConfig):
        async with serving_endpoint(runs, "sesame", "nowhere"):
            pass
