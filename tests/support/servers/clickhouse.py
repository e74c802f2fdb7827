"""
ClickHouse's engine behind its HTTP interface, as far as the sink uses that.

The engine is ``chdb``, which is ClickHouse itself as a library; it has no server in
it.  So a process of its own takes requests as ClickHouse does, with settings, user and
password in the same places, and answers with the same exception codes.  Run as a
program it serves; ``ClickHouseProcess`` runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from support.servers.http_server import Answer, LocalServer, Request

USER, PASSWORD = "default", "open sesame"

_NO_SETTINGS = {"query", "wait_end_of_query"}
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$")


class ClickHouseProcess:
    """The engine in a process, over a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = 0

    def __enter__(self) -> ClickHouseProcess:
        tests = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.servers.clickhouse", str(self._directory)],
            cwd=tests,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        # It ends when nobody holds the other end of its input any more.
        self._process.communicate()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forward(self, request: Request) -> Answer:
        """What the engine answers to *request*."""
        asked = UrlRequest(
            f"{self.url}/?{urlencode(request.query)}",
            data=request.body,
            headers=request.headers,
        )
        try:
            with urlopen(asked) as answer:
                return Answer(answer.status, answer.read())
        except HTTPError as error:
            with error:
                code = error.headers.get("X-ClickHouse-Exception-Code", "")
                return Answer(
                    error.code, error.read(), {"X-ClickHouse-Exception-Code": code}
                )

    def query(self, statement: str) -> list[list[str]]:
        """The rows that *statement* gives, as texts."""
        headers = {"x-clickhouse-user": USER, "x-clickhouse-key": PASSWORD}
        text = f"{statement} FORMAT TSV".encode()
        answer = self.forward(Request("POST", "/", {}, headers, text))
        assert answer.status == 200, answer.body
        return [line.split("\t") for line in answer.body.decode().splitlines()]


class Engine:
    """One session of the engine, used by one request at a time."""

    def __init__(self, directory: str) -> None:
        # Only the process that serves loads the engine.
        from chdb.session import Session

        self._session = Session(directory)
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        headers = request.headers
        user, password = (headers.get(f"x-clickhouse-{n}", "") for n in ("user", "key"))
        if (user, password) != (USER, PASSWORD):
            return _failure(516, "Authentication failed: password is incorrect")
        settings = {k: v for k, v in request.query.items() if k not in _NO_SETTINGS}
        try:
            with self._lock:
                return Answer(200, self._run(request, settings))
        except Exception as error:  # noqa: BLE001  # It raises errors of two kinds.
            said = str(error)
            found = re.search(r"Code: (\d+)", said)
            return _failure(int(found[1]) if found else 1, said)

    def _run(self, request: Request, settings: dict[str, str]) -> bytes:
        with tempfile.NamedTemporaryFile() as file:
            statement = request.query.get("query")
            if statement is None:
                statement = request.body.decode()
            else:
                file.write(request.body)
                file.flush()
            kind = "TSV"
            if found := _FORMAT.search(statement):
                kind = found[1]
                statement = statement[: found.start()]
                if statement.startswith("INSERT"):
                    statement += f" FROM INFILE '{file.name}' FORMAT {kind}"
            self._set({name: repr(value) for name, value in settings.items()})
            try:
                return self._session.query(statement, kind).bytes()
            finally:
                self._set(dict.fromkeys(settings, "DEFAULT"))

    def _set(self, settings: dict[str, str]) -> None:
        if settings:
            given = ", ".join(f"{name} = {value}" for name, value in settings.items())
            self._session.query(f"SET {given}")


def _failure(code: int, said: str) -> Answer:
    status = {60: 404, 81: 404, 516: 403}.get(code, 500)
    return Answer(status, said.encode(), {"X-ClickHouse-Exception-Code": str(code)})


if __name__ == "__main__":
    engine = Engine(sys.argv[1])
    with LocalServer(engine.answer) as server:
        print(server.port, flush=True)
        sys.stdin.read()
