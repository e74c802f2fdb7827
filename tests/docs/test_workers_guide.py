"""The examples of the guide to workers process messages until they are stopped."""

import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import pydanube
from pydanube import sync
from support.drivers.examples import BLOCK
from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = ROOT / "docs" / "guide" / "workers.md"
BLOCKS = [code for _, code in BLOCK.findall(PAGE.read_text())]
WAIT_S = 120

CLICKS = [{"page": f"/{number}"} for number in range(3)]
PUBLISHED = {
    "/default/orders": [{"id": number, "amount": 1.5} for number in range(5)],
    "/default/moves": ["e4", "e5", "Nf3"],
    "/default/clicks": CLICKS,
}


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def publish(client):
    definition = '{"type": "object"}'
    for topic, values in PUBLISHED.items():
        schema = (
            str
            if isinstance(values[0], str)
            else pydanube.Schema.json_schema(definition)
        )
        with client.producer(topic, schema=schema) as producer:
            for value in values:
                producer.send(value, key="k")


def wait_until_processed(client, topic, subscription, process):
    deadline = time.monotonic() + WAIT_S
    while True:
        with suppress(pydanube.SubscriptionNotFound):
            if client.subscriptions.describe(topic, subscription).backlog == 0:
                return
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_examples_process_messages_and_stop_on_sigterm(broker):
    blocks = [code for code in BLOCKS if "asyncio.run" in code]
    with sync.connect(broker.url) as client:
        publish(client)
        printed = [run(client, broker, code) for code in blocks]
        invoices = client.read("/default/invoices", schema=dict)
        totals = {m.value["order"]: m.value["total"] for b in invoices for m in b}
        logged = [m for b in client.read("/default/log") for m in b]
    assert printed[0] == [f"order {number}: 1.5" for number in range(5)]
    assert printed[1] == ["k e4", "k e5", "k Nf3"]
    assert sum(int(line.split()[0]) for line in printed[2]) == len(CLICKS)
    assert totals == dict.fromkeys(range(5), 1.5 * 1.2)
    assert len(printed[4]) == len(logged) == 3
    assert {each.attributes["by"] for each in logged} == {"billing"}
    assert sorted(each.payload for each in logged) == [b"E4", b"E5", b"NF3"]


def test_the_order_service_for_users_of_other_systems_runs(broker):
    page = (ROOT / "docs" / "guide" / "coming-from.md").read_text()
    [code] = re.findall(
        r"^```py\n(import asyncio\n.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    with sync.connect(broker.url) as client:
        publish(client)
        printed = run(client, broker, code)
    assert printed == [f"order {number}: 1.5" for number in range(5)]


def test_the_example_of_a_web_application_is_the_one_that_is_tested():
    """tests/e2e/test_web_examples.py runs it."""
    [code] = [code for code in BLOCKS if "asyncio.run" not in code]
    assert code in (ROOT / "examples" / "web" / "order_service.py").read_text()


def run(client, broker, code):
    """Run an example until it has processed its topic; return what it printed."""
    topic = re.findall(r'"(/default/\w+)"', code)[0]
    [subscription] = re.findall(r'subscription="(\w+)"', code)
    here = code.replace("connect()", f"connect({broker.url!r})")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", here], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until_processed(client, topic, subscription, process)
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
        finally:
            process.kill()
    return printed.splitlines()
