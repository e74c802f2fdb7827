"""``danube mcp`` with a real MCP client, over both transports."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import contextmanager

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from support.drivers.commands import danube, end, start_danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@contextmanager
def served(broker, *options, **variables):
    """Run ``danube mcp --http``; yield the URL, and check that it stops."""
    process = start_danube(
        *("mcp", "--http", "127.0.0.1:0", "--http-url", broker.http_url, *options),
        url=broker.url,
        **variables,
    )
    line = process.stderr.readline().decode()
    found = re.search(r"http://\S+", line)
    assert found, line + process.stderr.read().decode()
    yield found[0]
    code, _, err = end(process, signal.SIGTERM)
    assert (code, "Traceback" in err) == (143, False), err


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secured")
    settings = directory / "broker.yaml"
    key_file = directory / "bootstrap.key"
    settings.write_text(
        f"security: {{enabled: true, bootstrap_key_file: {key_file}}}\n"
    )
    with BrokerProcess(directory / "data", "--config", str(settings)) as broker:
        key = key_file.read_text().strip()
        yield broker, key


def test_a_signal_ends_it_although_nothing_was_received(broker):
    process = start_danube("mcp", "--allow-changes", url=broker.url)
    process.stdin.write(
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}\n'
    )
    assert b'"id":1' in process.stdout.readline()
    code, out, err = end(process, signal.SIGINT)
    assert (code, out, err) == (130, "", "")


def test_it_serves_http_on_this_machine(broker):
    async def run(url):
        async with Client(url) as client:
            found = await client.call_tool("list_topics", {})
            assert found.structured_content["total"] == 0
            made = await client.call_tool("create_topic", {"topic": "/default/b"})
            assert not made.is_error

    with served(broker, "--allow-changes") as url:
        asyncio.run(run(url))
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            answer = httpx.post(url, json={}, headers=headers)
            assert answer.status_code in {403, 421}, answer
        # This broker does not check credentials, so they prove nothing.
        headers = {"authorization": "Bearer anything"}
        answer = httpx.post(url, json={}, headers=headers)
        assert answer.status_code == 401
        assert "--token-file" in answer.json()["message"]


async def call(url, credentials, tool, **arguments):
    headers = {"authorization": f"Bearer {credentials}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        return await client.call_tool(tool, arguments)


@pytest.mark.soak
@pytest.mark.smoke
def test_callers_work_with_their_own_permissions(secured):
    broker, admin = secured
    said = danube(
        *("security", "keys", "create", "reader"), url=broker.url, DANUBE_API_KEY=admin
    )
    [reader] = re.findall(r"danube_\S+", said.stdout)
    with served(broker, "--allow-changes") as url:
        found = asyncio.run(call(url, admin, "create_topic", topic="/default/made"))
        assert not found.is_error
        found = asyncio.run(call(url, admin, "metrics", text="danube_topics"))
        assert found.structured_content["items"]
        found = asyncio.run(call(url, reader, "describe_cluster"))
        assert found.is_error
        found = asyncio.run(call(url, reader, "create_topic", topic="/default/other"))
        assert found.is_error
        assert "permission_denied" in found.content[0].text
        for header in ("Bearer danube_unknown", f"Basic {admin}", "Bearer x.y.z"):
            answer = httpx.post(url, json={}, headers={"authorization": header})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "0.0.0.0:0"], "without encryption"),
        (["--http", "nowhere"], "is not an address"),
        (["--allowed-host", "a"], "are about HTTP"),
        (["--http", "127.0.0.1:0", "--key-file", "a"], "need each other"),
        (["--http", "127.0.0.1:0", "--token-file", "/dev/null"], "at least 16"),
        (["--http", "127.0.0.1:0", "--token-file", "/none"], "cannot be read"),
    ],
)
def test_mistakes_are_explained(options, said):
    done = danube("mcp", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
