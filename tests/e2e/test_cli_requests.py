"""Requests and replies from the command line."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from pydanube import sync
from support.drivers.commands import danube, end, start_danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/requests"
FAILING = (
    "import sys; text = sys.stdin.read(); print(text[::-1], end='');"
    "sys.exit(3 if text == 'fail' else 0)"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        with sync.connect(broker.url) as client:
            client.topics.create(TOPIC)
            # Requests wait here until the command replies.
            client.subscriptions.create(TOPIC, "reply", type="shared")
        yield broker.url


def ask(url, text, *options):
    return danube("request", TOPIC, "--timeout", "60s", *options, url=url, stdin=text)


def test_program_replies_and_its_failure_is_an_error(url):
    with sync.connect(url) as client, client.producer(TOPIC) as producer:
        producer.send(b"not a request")
    program = f'"{sys.executable}" -c "{FAILING}"'
    replying = start_danube("reply", TOPIC, "--exec", program, url=url)
    try:
        done = ask(url, "abc")
        assert (done.returncode, done.stdout) == (0, "cba"), done.stderr
        [found] = ask(url, "", "-m", "xyz", "-o", "json").stdout.splitlines()
        assert json.loads(found)["payload"] == "zyx"
        done = ask(url, "fail")
        assert done.returncode != 0
        assert "the program ended with status 3" in done.stderr
    finally:
        code, out, err = end(replying, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "is not a request" in err
    assert "Replied to 3 requests" in err


def test_command_without_a_program_echoes_a_number_of_requests(url):
    replying = start_danube("reply", TOPIC, "-n", "1", url=url)
    try:
        assert ask(url, "abc").stdout == "abc"
        assert replying.wait(timeout=60) == 0
    finally:
        end(replying, signal.SIGINT)


def test_program_that_takes_too_long_is_killed(url):
    program = f'"{sys.executable}" -c "import time; time.sleep(600)"'
    slow = ("--exec", program, "--exec-timeout", "200ms", "-n", "1")
    replying = start_danube("reply", TOPIC, *slow, url=url)
    try:
        assert "did not end within 0.2 s" in ask(url, "abc").stderr
        assert replying.wait(timeout=60) == 0
    finally:
        end(replying, signal.SIGINT)


def test_mistakes_are_explained(url):
    done = danube("request", TOPIC, "-m", "x", "--timeout", "50ms", url=url)
    assert done.returncode != 0
    assert "check that a consumer of the topic replies" in done.stderr
    done = danube("reply", TOPIC, "--exec", "no-such-program", url=url)
    assert "does not begin with a program" in done.stderr
    done = danube("reply", TOPIC, "--exec", "'open", url=url)
    assert "No closing quotation" in done.stderr
