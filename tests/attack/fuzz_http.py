"""
Malformed requests on the HTTP server: bytes, paths, headers and JSON.

Every response is a success or names the mistake of the caller; none has status 500.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.http.operations import path_of

if TYPE_CHECKING:
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 4
REQUESTS = 80
READ_TIMEOUT_S = 10.0
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "G\x01T")
NAMES = (
    *("fuzz", "a", "", "%00", "%2F", "..", "%FF", "x" * 300, "%E2%98%83", "1", "-1"),
    *("latest", "9" * 30, "fuzz-part-1", "a%20b"),
)
PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/nothing"),
    "/api/v1/{}",
    *(f"/api/v1{path_of(kind)}" for kind in handlers()),
)
QUERIES = (
    "",
    "?topic=/default/fuzz",
    "?version=1",
    "?limit=x",
    "?namespace=",
    "?%ff=%ff",
)
FIELDS = (
    *("topic", "namespace", "subscription", "name", "policy", "partitions", "schema"),
    *("type", "start", "to", "count", "definition", "message", "compatibility"),
    *("subject", "version", "tags", "settings", "changes", "limits", "retention"),
    *("unknown", "failure_policy", "ranges", "base", "end", "role", "binding", "quota"),
)
VALUES = (
    *(
        None,
        True,
        0,
        1,
        -1,
        2**31,
        2**63,
        2**70,
        1.5,
        1e308,
        "",
        "fuzz",
        "/default/fuzz",
    ),
    *("/default/fuzz-b", "/fuzz/fuzz", "EXCLUSIVE", "SHARED", "LATEST", "EARLIEST"),
    *(
        "2025-03-01T09:30:00Z",
        "0000",
        "9999-99-99",
        "\0",
        "\ud800",
        "avro",
        "json_schema",
    ),
    *("protobuf", "string", '"int"', "{}", "backward", "enforce", "x" * 300),
)
HEADERS = (
    *("Host: 127.0.0.1", "Host: evil.example", "Host:", "Host: [::1", "Host: \xff"),
    *("Origin: null", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"),
    *(
        "Expect: 100-continue",
        "Connection: upgrade",
        "Upgrade: websocket",
        "X: " + "y" * 99,
    ),
    *(
        "Transfer-Encoding: chunked",
        "Content-Length: x",
        "Accept: \x7f",
        "Upgrade: h2c",
    ),
)
KINDS = (
    "application/json",
    "application/json; charset=utf-8",
    "text/plain",
    "",
    "\xff",
)


async def attack(target: Target, rng: Random) -> None:
    """Send requests, each on its own connection."""
    port = target.broker.http_port
    for _ in range(REQUESTS):
        sent = _request(rng)
        if rng.random() < 0.2:
            sent = _mutated(sent, rng)
        received = await _ask(port, sent)
        for answer in received.split(b"HTTP/1.1 ")[1:]:
            status = int(answer[:3])
            assert status < 500 or status == 503, (sent, received)
            if status >= 400 and b"application/json" not in answer[:500]:
                assert b"HEAD" in sent, (sent, received)


def _request(rng: Random) -> bytes:
    path = rng.choice(PATHS)
    while "{}" in path:
        path = path.replace("{}", rng.choice(NAMES), 1)
    method = rng.choice(METHODS[:4] * 3 + METHODS)
    body = json.dumps(_object(rng)).encode()
    if rng.random() < 0.2:
        body = _mutated(body, rng)
    headers = ["Connection: close", f"Content-Length: {len(body)}"]
    headers.append(f"Content-Type: {rng.choice(KINDS[:1] * 6 + KINDS)}")
    headers.append("Host: 127.0.0.1")
    if rng.random() < 0.3:
        headers.append(rng.choice(HEADERS))
    head = f"{method} {path}{rng.choice(QUERIES)} HTTP/1.1\r\n"
    head += "".join(f"{header}\r\n" for header in headers) + "\r\n"
    return head.encode("latin-1") + body


def _object(rng: Random, depth: int = 0) -> Any:
    found: dict[str, Any] = {"topic": "/default/fuzz"} if rng.random() < 0.3 else {}
    for _ in range(rng.randrange(4)):
        is_leaf = depth > 2 or rng.random() < 0.7
        value = rng.choice(VALUES) if is_leaf else _object(rng, depth + 1)
        found[rng.choice(FIELDS)] = [value] if rng.random() < 0.1 else value
    return found


def _mutated(sent: bytes, rng: Random) -> bytes:
    mutated = bytearray(sent)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(mutated) + 1)
        mutated[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(mutated)


async def _ask(port: int, sent: bytes) -> bytes:
    """Return the response of the broker, up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(READ_TIMEOUT_S):
            received = await reader.read()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return received
