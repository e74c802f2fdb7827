"""Tests of HTTP requests with retries."""

from contextlib import closing

import pytest

pytest.importorskip("httpx")

from pydanube.model.errors import InvalidConfig, Unavailable
from pydanube.model.retry import RetryPolicy
from pydanube_spark.sinks.requests import Requests, requested_delay_s
from support.servers.http_server import Answer, Broken, LocalServer

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def requests(pauses):
    retries = RetryPolicy(1.0, 30.0, retries_max=2)
    with closing(Requests(timeout_s=5.0, retries=retries, wait=pauses.append)) as made:
        yield made


@pytest.fixture
def server():
    with LocalServer(lambda request: Answer(200, request.body)) as server:
        yield server


def test_transient_failure_is_retried_after_the_requested_wait(
    requests, server, pauses
):
    server.faults.extend([Answer(429, headers={"Retry-After": "7"}), Broken.AFTER])
    response = requests.send("POST", server.url, content=b"rows")
    assert response.content == b"rows"
    assert pauses == [7.0, 2.0]
    assert len(server.requests) == 2


def test_permanent_response_is_returned(requests, server, pauses):
    server.faults.append(Answer(422, b"no"))
    assert requests.send("POST", server.url).status_code == 422
    assert pauses == []


def test_last_response_is_summarized_after_the_last_retry(requests, server):
    server.faults.extend([Answer(503, b"x" * 10_000)] * 3)
    with pytest.raises(Unavailable, match="503") as failed:
        requests.send("PUT", f"{server.url}/hooks/sesame?token=sesame")
    said = str(failed.value)
    assert said.startswith(f"PUT {server.url}: ")
    assert len(said) < 700
    assert "sesame" not in said


def test_malformed_url_is_not_retried(requests, pauses):
    with pytest.raises(InvalidConfig, match="url"):
        requests.send("POST", "http://[::1")
    assert pauses == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("120", 120.0),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", 0.0),
        (None, 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_time_of_the_servers_clock(text, wanted):
    assert requested_delay_s(text, DATE) == wanted


def test_retry_after_time_needs_a_date_header():
    assert requested_delay_s(DATE, None) == 0.0
