"""
The runs of ``danube connect run`` of a user: where they are found, and asked.

Each has a file with its process, address and token, which only the user can read.
"""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from pydanube.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from pydanube.model.redaction import without_password
from pydanube.model.suggestions import did_you_mean
from pydanube.model.url_options import UrlOptions, split_query
from pydanube.security.addresses import is_loopback
from pydanube_connect.run_log import LogLine
from pydanube_connect.status import ConnectorStatus
from pydanube_spark.pipelines.run_directory import user_state
from pydanube_spark.pipelines.state import process_start_time, replace_file

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
TOKEN_BYTES_MIN = 16
TOKEN_BYTES_MAX = 1024
LOCAL = "local"
"""The word for all runs of the user on this machine."""

T = TypeVar("T")


class ConnectorRun(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs connectors."""

    pid: int
    mark: str | None
    """The start time of the process, which distinguishes reused pids."""
    url: str
    token: str
    connectors: list[str] | None
    """None: it is a worker, whose connectors change."""
    ca_file: str | None = None
    """The authorities to trust, if a proxy serves it by HTTPS."""

    @property
    def names(self) -> list[str]:
        """
        The names of its connectors.

        Raises:
            Unavailable: It is a worker that does not answer.
        """
        if self.connectors is not None:
            return self.connectors
        return [each.connector for each in self.statuses()]

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
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with closing(self._connection()) as connection:
                connection.request(method, path, headers=headers)
                answer = connection.getresponse()
                body = answer.read(ANSWER_BYTES_MAX)
            if answer.status != HTTPStatus.OK:
                found = msgspec.json.decode(body, type=dict[str, str])
                raise Conflict(found.get("error", str(answer.status)))
            return msgspec.json.decode(body, type=kind)
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            who = f"process {self.pid}" if self.pid else self.url
            reason = error.strerror if isinstance(error, OSError) else None
            raise Unavailable(f"{who} does not answer: {reason or error}") from None

    def _connection(self) -> HTTPConnection:
        address = urlsplit(self.url)
        if address.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            return HTTPSConnection(address.netloc, timeout=TIMEOUT_S, context=context)
        return HTTPConnection(address.netloc, timeout=TIMEOUT_S)


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
        own = [each for each in runs if name in each.names]
        if len(own) > 1:
            pids = ", ".join(str(each.pid) for each in own)
            raise Conflict(f"several processes run the connector {name}: {pids}")
        if not own:
            known = [other for each in runs for other in each.names]
            hint = did_you_mean(name, known) or "; 'danube connect status' shows them"
            raise NotFound(f"no process runs a connector {name}{hint}")
        found[name] = own[0]
    return found


def run_at(url: str) -> ConnectorRun:
    """
    Return the run whose endpoint is at *url*, without asking it.

    Its query may have a ``token_file``, which changes need, and a ``ca_file``.

    Raises:
        InvalidRequest: It is not such a URL, its file cannot be read, or the token
            would be sent readable over the network.
    """
    bare, query = split_query(url)
    address = urlsplit(bare)
    if (
        address.scheme not in {"http", "https"}
        or not address.hostname
        or address.path.strip("/")
        or "@" in bare
    ):
        raise InvalidRequest(
            f"{without_password(url)} is not the address of connectors, as in "
            "http://HOST:PORT?token_file=FILE"
        )
    options = UrlOptions.parse(query) if query else UrlOptions()
    known = {"ca_file", "token_file", "allow_plaintext_credentials"}
    if unknown := options.given().keys() - known:
        raise InvalidRequest(
            f"the address of connectors has the option {min(unknown)}; known are "
            f"{', '.join(sorted(known))}"
        )
    token = "" if options.token_file is None else token_in(Path(options.token_file))
    is_plain = address.scheme == "http" and not is_loopback(address.hostname)
    if token and is_plain and not options.allows_plaintext_credentials:
        raise InvalidRequest(
            f"{bare} is on another machine and without TLS, which would send the token "
            "readable over the network: use a proxy with HTTPS, or add "
            "allow_plaintext_credentials=true if the network is trusted"
        )
    bare = f"{address.scheme}://{address.netloc}"
    return ConnectorRun(
        pid=0, mark=None, url=bare, token=token, connectors=[], ca_file=options.ca_file
    )


def token_in(file: Path) -> str:
    """
    Return the token in *file*.

    Raises:
        InvalidRequest: It cannot be read, or has no token.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the token file {file} cannot be read: {error}") from None
    if not TOKEN_BYTES_MIN <= len(text) <= TOKEN_BYTES_MAX or not text.isprintable():
        raise InvalidRequest(
            f"the token file {file} must have one line of {TOKEN_BYTES_MIN} to "
            f"{TOKEN_BYTES_MAX} printable characters"
        )
    return text


def runs_of(given: Sequence[str]) -> list[ConnectorRun]:
    """
    Return the runs at the addresses *given*; ``local``: those of the user.

    The token of a run of the user need not be given.

    Raises: As ``run_at``.
    """
    own = {each.url: each for each in running()}
    found: dict[str, ConnectorRun] = {}
    for each in given:
        if each == LOCAL:
            found |= own
        else:
            run = run_at(each)
            is_own = not run.token and run.url in own
            found[run.url] = own[run.url] if is_own else run
    return list(found.values())
