"""The refusal of requests from web pages of other sites."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from pydanube_broker.servers.http.app import make_app
from support.fakes.http_api import State


def ask(method: str = "GET", path: str = "/healthz", **headers: str) -> httpx.Response:
    """Return the answer to a request with headers; underscores become hyphens."""

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(State(), ["danube.example"]))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8080"
        ) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, path, headers=named)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:8080", "10.1.2.3:8080", "[::1]", "[fe80::1]:8080"),
        *("localhost", "LOCALHOST:8080", "broker", "broker:8080"),
        *("danube.example", "Danube.Example.:8080"),
    ],
)
def test_address_or_known_name_in_host_is_accepted(host):
    assert ask(host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example:8080", "x.danube.example"),
        *("danube.example.evil", "[evil.example]", "a.b:c:8080"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/list_topics", "/nothing"])
def test_unknown_name_in_host_is_refused(host, path):
    answer = ask(path=path, host=host)
    assert answer.status_code == 403
    assert answer.json()["code"] == "permission_denied"
    assert "listen.http_hosts" in answer.json()["message"]


async def test_every_name_may_be_accepted():
    async def main() -> int:
        transport = httpx.ASGITransport(make_app(State(), ["*"]))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://any.example"
        ) as client:
            return (await client.get("/healthz")).status_code

    assert await main() == 200


def test_own_origin_is_accepted():
    headers = {"host": "danube.example:8080", "origin": "http://danube.example:8080"}
    assert ask(**headers).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:3000", "https://127.0.0.1:8080"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_foreign_origin_is_refused(method, origin):
    answer = ask(method, "/api/v1/describe_topic", origin=origin)
    assert answer.status_code == 403
    assert "Origin" in answer.json()["message"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_cross_site_request_is_refused(method):
    answer = ask(method, "/api/v1/describe_topic", sec_fetch_site="cross-site")
    assert answer.status_code == 403
    assert "Sec-Fetch-Site" in answer.json()["message"]


def test_link_from_another_site_may_be_followed():
    headers = {
        "sec_fetch_site": "cross-site",
        "sec_fetch_mode": "navigate",
        "sec_fetch_dest": "document",
    }
    assert ask(**headers).status_code == 200
    assert ask("POST", "/api/v1/create_topic", **headers).status_code == 403
    headers["sec_fetch_dest"] = "iframe"
    assert ask(**headers).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_request_of_the_own_site_is_accepted(site):
    assert ask(sec_fetch_site=site).status_code == 200


def test_unknown_path_is_an_error_in_json():
    answer = ask(path="/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
