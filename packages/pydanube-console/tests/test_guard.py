"""Requests of other sites are refused, and pages run no foreign scripts."""

import asyncio
import re

import httpx
import pytest
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route

from pydanube_console.guard import (
    FILE_BYTES_MAX,
    FORM_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Guard,
    mark_scripts,
)
from support.servers.consoles import EVIL

PAGE = """<html><script>a()</script><script
type=module>b()</script>{{ data | safe }}{{ prefix }}</html>"""
TEMPLATES = Environment(autoescape=True)
mark_scripts(TEMPLATES)


async def page(request):
    prefix = request.headers.get("x-forwarded-prefix", "")
    found = TEMPLATES.from_string(PAGE).render(data=EVIL, prefix=prefix)
    return HTMLResponse(found)


async def text(_):
    return PlainTextResponse("<script>not a page</script>")


APP = Starlette(
    routes=[Route("/", page), Route("/text", text, methods=["GET", "POST"])]
)


def ask(path="/", method="GET", *, is_https=False, content=b"", **headers):
    async def main():
        guarded = Guard(APP, ["console.example"], is_https=is_https)
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://x"
        ) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, path, headers=named, content=content)

    return asyncio.run(main())


def test_scripts_of_a_page_get_the_nonce_of_its_policy():
    answer = ask()
    policy = answer.headers["content-security-policy"]
    [nonce] = re.findall(r"'nonce-([^']+)'", policy)
    assert answer.text.count(f'<script nonce="{nonce}"') == 2
    assert answer.headers["content-length"] == str(len(answer.content))
    assert "frame-ancestors 'none'" in policy
    assert nonce not in ask().text


def test_script_in_data_gets_no_nonce():
    assert EVIL in ask().text


def test_addresses_of_scripts_do_not_follow_a_forged_prefix():
    assert "evil" not in ask(x_forwarded_prefix="//evil.example").text


def test_only_pages_are_changed():
    assert ask("/text").text == "<script>not a page</script>"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_requests_of_other_sites_are_refused(headers):
    assert ask("/text", "POST", **headers).status_code == 403


def test_known_names_are_served():
    assert ask(host="console.example:8090").status_code == 200
    origin = "https://console.example"
    https = ask("/text", "POST", is_https=True, host="console.example", origin=origin)
    assert https.status_code == 200
    assert "strict-transport-security" in https.headers


def test_long_requests_are_refused():
    assert (
        ask("/text", "POST", content=b"x" * (REQUEST_BYTES_MAX + 1)).status_code == 413
    )


def test_requests_without_a_length_are_refused():
    async def parts():
        yield b"x"

    assert ask("/text", "POST", content=parts()).status_code == 411


def test_websockets_of_other_sites_are_closed():
    sent = []

    async def main():
        async def send(message):
            sent.append(message)

        scope = {
            "type": "websocket",
            "path": "/",
            "headers": [(b"host", b"127.0.0.1"), (b"origin", b"http://evil.example")],
        }
        await Guard(APP, [], is_https=False)(scope, None, send)

    asyncio.run(main())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_files_may_be_longer_than_other_requests():
    path = "/_nicegui/client/0f-1/upload/7"
    # The address of no page: the guard lets it pass.
    assert ask(path, "POST", content=b"x" * FILE_BYTES_MAX).status_code == 404
    too_long = b"x" * (FORM_BYTES_MAX + 1)
    assert ask(path, "POST", content=too_long).status_code == 413
    assert ask(f"/text{path}", "POST", content=b"x" * FILE_BYTES_MAX).status_code == 413
