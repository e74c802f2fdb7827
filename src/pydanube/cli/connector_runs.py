"""
The runs of ``danube connect run`` of a user: where they are found, and asked.

Each has a file with its process, address and token, which only the user can read.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from pydanube.connectors.run_log import LogLine
from pydanube.connectors.status import ConnectorStatus
from pydanube.model.errors import Conflict, NotFound, Unavailable
from pydanube.model.suggestions import did_you_mean
from pydanube.pipelines.run_directory import user_state
from pydanube.pipelines.state import process_start_time, replace_file

log = logging.getLogger("pydanube.cli")

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024

T = TypeVar("T")


class ConnectorRun(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs connectors."""

    pid: int
    mark: str | None
    """The start time of the process, which distinguishes reused pids."""
    url: str
    token: str
    connectors: list[str]

    def statuses(self) -> list[ConnectorStatus]:
        """
        Return the status of its connectors.

        Raises:
            Unavailable: It does not answer.
        """
        return self._ask("GET", "/status", list[ConnectorStatus])

    def act(self, action: str, name: str) -> ConnectorStatus:
        """
        Pause, resume or restart the connector *name*, and return its status.

        Raises:
            Conflict: This is not possible in its state.
            Unavailable: The process does not answer.
        """
        path = f"/connectors/{quote(name, safe='')}/{action}"
        return self._ask("POST", path, ConnectorStatus)

    def log_lines(self, name: str, after: int = 0) -> list[LogLine]:
        """
        Return the last lines of the connector *name*, after the number *after*.

        Raises:
            Unavailable: The process does not answer.
        """
        path = f"/connectors/{quote(name, safe='')}/logs?after={after}"
        return self._ask("GET", path, list[LogLine])

    def _ask(self, method: str, path: str, kind: type[T]) -> T:
        address = urlsplit(self.url)
        connection = HTTPConnection(address.netloc, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            with closing(connection):
                connection.request(method, path, headers=headers)
                answer = connection.getresponse()
                body = answer.read(ANSWER_BYTES_MAX)
            if answer.status != HTTPStatus.OK:
                found = msgspec.json.decode(body, type=dict[str, str])
                raise Conflict(found.get("error", str(answer.status)))
            return msgspec.json.decode(body, type=kind)
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise Unavailable(f"process {self.pid} does not answer: {error}") from None


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(24)


def directory() -> Path:
    """Return the directory with the files of runs."""
    return user_state() / "connect"


@contextmanager
def registered(run: ConnectorRun) -> Iterator[None]:
    """
    Let the user find *run* during the body.

    The body runs also if this fails, for example because the home directory is
    read-only.
    """
    file = directory() / f"{run.pid}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(file, msgspec.json.encode(run), is_secret=True)
    except OSError as error:
        log.warning("'danube connect status' does not show this run: %s", error)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def running() -> list[ConnectorRun]:
    """Return the runs of the user, the oldest first; files of others are removed."""
    found = []
    for file in sorted(directory().glob("[0-9]*.json")):
        try:
            run = msgspec.json.decode(file.read_bytes(), type=ConnectorRun)
        except (OSError, ValueError):
            continue
        if process_start_time(run.pid) == run.mark:
            found.append(run)
        else:
            file.unlink(missing_ok=True)
    return found


def find(names: Sequence[str]) -> dict[str, ConnectorRun]:
    """
    Return the run of each of *names*.

    Raises:
        NotFound: No process runs a connector of this name.
        Conflict: Several do.
    """
    runs = running()
    found = {}
    for name in names:
        own = [each for each in runs if name in each.connectors]
        if len(own) > 1:
            pids = ", ".join(str(each.pid) for each in own)
            raise Conflict(f"several processes run the connector {name}: {pids}")
        if not own:
            known = [other for each in runs for other in each.connectors]
            hint = did_you_mean(name, known) or "; 'danube connect status' shows them"
            raise NotFound(f"no process runs a connector {name}{hint}")
        found[name] = own[0]
    return found
