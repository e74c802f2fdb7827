"""The examples of web applications run, on uvicorn and with a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from pydanube import sync
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXAMPLES = ROOT / "examples" / "web"
WAIT_S = 120


@contextmanager
def served(name, broker_url):
    """Serve an example while the body runs, and stop it in good order."""
    url = f"http://127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", f"{name}:app", "--app-dir", EXAMPLES),
            *("--port", url.rpartition(":")[2]),
        ],
        env=os.environ | {"DANUBE_URL": broker_url},
    ) as process:
        try:
            with httpx.Client(base_url=url, timeout=WAIT_S) as http:
                until(lambda: is_up(http, process))
                yield http
            process.terminate()
            # uvicorn ends with the signal after a shutdown in good order.
            assert process.wait(WAIT_S) in (0, -15)
        finally:
            process.kill()


def is_up(http, process):
    assert process.poll() is None
    try:
        http.get("/")
    except httpx.ConnectError:
        return False
    return True


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def client(broker):
    with sync.connect(broker.url) as client:
        yield client


def test_the_order_service_accepts_and_bills_orders(client, broker):
    client.topics.create("/default/orders")
    with served("order_service", broker.url) as http:
        for number in range(5):
            answer = http.post("/orders", json={"id": number, "amount": 9.5})
            assert (answer.status_code, answer.json()) == (202, {"offset": number})
        until(lambda: http.get("/orders/4").json() == {"billed": True})
        assert http.get("/health").json() == {"workers": "running"}
        assert http.post("/orders", json={"id": "no number"}).status_code == 422
    facts = client.subscriptions.describe("/default/orders", "billing")
    assert (facts.backlog, facts.consumers, facts.counts.nacked) == (0, (), 0)


def test_a_browser_continues_where_it_was_interrupted(client, broker):
    topic = "/default/news"
    with (
        ExitStack() as held,
        client.producer(topic) as producer,
        served("events", broker.url) as http,
    ):
        producer.send_batch(["first", "second\nline", "third"])
        assert events(http, topic, {"last-event-id": "0"}, 2) == [
            ["id: 1", "data: second", "data: line"],
            ["id: 2", "data: third"],
        ]
        # This response ends with the server, which waits for it.
        other = held.enter_context(httpx.Client(base_url=http.base_url, timeout=WAIT_S))
        held.enter_context(other.stream("GET", f"/events?topic={topic}"))


def events(http, topic, headers, count):
    """The first events, each with its lines."""
    found = [[]]
    with http.stream("GET", f"/events?topic={topic}", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line:
                found[-1].append(line)
            elif len(found) == count:
                return found
            else:
                found.append([])
    raise AssertionError(found)
