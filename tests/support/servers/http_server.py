"""
A web server in a thread of the test, which can be told to fail.

What it answers is a function; what goes wrong is a list of faults, of which each
request takes the next.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Request:
    """What came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes


@dataclass
class Answer:
    """What goes."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Broken(Enum):
    """How a connection fails."""

    BEFORE = "before"
    """Nothing has been done when it breaks."""
    AFTER = "after"
    """Everything has been done when it breaks."""
    SILENT = "silent"
    """Nothing is done, and there is no answer until the server ends."""


class LocalServer:
    """A server on a free port of this machine; ``with`` starts and ends it."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        """All that were carried out."""
        self.faults: deque[Answer | Broken | None] = deque()
        """What the next requests meet with instead; None: nothing."""
        self.port = 0
        self._answer = answer
        self._ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LocalServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                owner._handle(self)

            do_GET = do_PUT = do_PATCH = do_OPTIONS = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length", "0"))
        address = urlsplit(handler.path)
        request = Request(
            handler.command,
            address.path,
            dict(parse_qsl(address.query, keep_blank_values=True)),
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(length),
        )
        fault = self.faults.popleft() if self.faults else None
        if fault is Broken.SILENT:
            self._ended.wait()
        if fault in (Broken.BEFORE, Broken.SILENT):
            _reset(handler)
            return
        if isinstance(fault, Answer):
            _send(handler, fault)
            return
        self.requests.append(request)
        answer = self._answer(request)
        if fault is Broken.AFTER:
            _reset(handler)
        else:
            _send(handler, answer)


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(answer.body)))
    handler.end_headers()
    handler.wfile.write(answer.body)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """Close so that the other side is told, as when a process is killed."""
    handler.connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
