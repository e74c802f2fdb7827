"""
The contents of a debug bundle: what a maintainer needs to understand a broker.

Each part is collected for itself, so a broker that does not answer leaves out its
parts, and the bundle says why.  The size of each part is bounded.
"""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from pydanube.client.client import connect
from pydanube.client.connections.credentials import API_KEY_VARIABLE, TOKEN_VARIABLE
from pydanube.client.described_topics import describe_topics
from pydanube.model.errors import BrokerError
from pydanube.model.json_values import to_json_value
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.version import __version__
from pydanube_cli.diagnosis.broker_checks import DEFAULT_HTTP_URL
from pydanube_cli.diagnosis.secret_removal import SecretRemover

if TYPE_CHECKING:
    from pydanube_broker.servers.settings.config import BrokerConfig

LOG_BYTES_MAX = 2 * 1024**2
"""The end of each log."""
ANSWER_BYTES_MAX = 8 * 1024**2
"""The beginning of the metrics."""
THREADS_MAX = 1000
VARIABLE_PREFIXES = ("DANUBE_", "AWS_", "GOOGLE_", "AZURE_", "OTEL_", "PYTHON")
PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
STATUS_FIELDS = frozenset(
    {"Name", "State", "Threads", "VmPeak", "VmRSS", "VmSwap", "Cpus_allowed_list"}
)

README = """\
A debug bundle of pydanube {version}, made at {time}.

  versions.json     Python, packages, the operating system
  settings.json     the broker's settings on this machine
  environment.json  the environment variables that concern brokers and object stores
  findings.json     the findings of danube doctor
  process.json      memory, limits and threads of the broker's process
  cluster.json      brokers and shards
  storages.json     segments and uploads of each broker
  topics.json       topics and their subscriptions, at most as many as --topics says
  metrics.txt       the metrics of the broker
  readiness.json    the answer of /readyz
  logs/             the ends of the logs that --log names
  missing.json      the parts that could not be collected, and why

Messages, keys and attributes are not included.  Secrets are replaced by ***.  The names
of topics, subscriptions, hosts and files are included: look through the files before
you send the bundle to somebody.
"""

HTTP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the parts of a bundle come from."""

    environ: Mapping[str, str]
    url: str
    http_url: str | None
    """None: as the broker says."""
    logs: tuple[Path, ...]
    topics_max: int


class DebugBundle:
    """The files of a bundle, without secrets, by their names."""

    def __init__(self, sources: Sources, settings: dict[str, Any]) -> None:
        self._sources = sources
        self._remover = SecretRemover(
            settings,
            dict(sources.environ),
            [sources.url, sources.http_url or ""],
        )
        self.files: dict[str, bytes] = {}
        self.missing: dict[str, str] = {}
        self._http_url = sources.http_url or DEFAULT_HTTP_URL

    def add(self, name: str, collect: Callable[[], Any]) -> None:
        """
        Add the file *name* with what *collect* returns: text, or a value for JSON.

        If *collect* fails, the reason is listed in ``missing.json``.
        """
        try:
            value = collect()
        except (BrokerError, OSError, ValueError) as error:
            self.missing[name] = self._remover.clean_text(str(error) or repr(error))
            return
        if isinstance(value, str):
            text = self._remover.clean_text(value)
        else:
            cleaned = self._remover.clean(to_json_value(value))
            text = json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n"
        self.files[name] = text.encode(errors="replace")

    def add_machine(self) -> None:
        """Add what is known without asking the broker."""
        sources = self._sources
        self.add("versions.json", versions)
        self.add("environment.json", lambda: relevant_variables(sources.environ))
        # Two logs may have the same name.
        for number, path in enumerate(sources.logs, 1):
            self.add(f"logs/{number}-{path.name}", partial(end_of_log, path))

    async def add_broker(self) -> None:
        """Add what the broker says through the native protocol."""
        parts: dict[str, Any] = {}
        names = ("cluster.json", "storages.json", "topics.json")
        try:
            async with connect(self._sources.url) as client:
                if self._sources.http_url is None:
                    told = (await client.cluster.describe_broker()).http_url
                    self._http_url = told or DEFAULT_HTTP_URL
                parts["cluster.json"] = await client.cluster.describe()
                parts["storages.json"] = await client.storage.describe_all()
                described, count = await describe_topics(
                    client, None, self._sources.topics_max
                )
                parts["topics.json"] = {"topic_count": count, "topics": described}
        except (BrokerError, OSError) as error:
            reason = self._remover.clean_text(str(error))
            self.missing |= {name: reason for name in names if name not in parts}
        for name, value in parts.items():
            self.add(name, partial(_same, value))

    def add_http(self) -> None:
        """Add what the broker says through its HTTP port, after ``add_broker``."""
        base = self._http_url.rstrip("/")
        environ = self._sources.environ
        credential = environ.get(TOKEN_VARIABLE) or environ.get(API_KEY_VARIABLE)
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}

        def get(path: str) -> str:
            request = Request(base + path, headers=headers)  # noqa: S310  # As the user says.
            with urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310
                body: bytes = answer.read(ANSWER_BYTES_MAX)
            return body.decode(errors="replace")

        self.add("metrics.txt", lambda: get("/metrics"))
        self.add("readiness.json", lambda: json.loads(get("/readyz")))

    def write(self, path: Path) -> None:
        """
        Write the archive *path*, which only its owner can read.

        Raises:
            OSError: The file exists, or cannot be written.
        """
        made_at = int(time.time())  # noqa: TID251  # The time of the files.
        readme = README.format(
            version=__version__, time=time.strftime("%FT%TZ", time.gmtime(made_at))
        )
        self.add("missing.json", lambda: self.missing)
        files = {"README.txt": readme.encode(), **self.files}
        top = path.name.partition(".")[0]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), made_at, 0o600
                archive.addfile(entry, io.BytesIO(content))


def local_bundle(sources: Sources, config: BrokerConfig) -> DebugBundle:
    """Return a bundle with what is known of a broker with *config* on this machine."""
    settings = settings_as_json(config)
    made = DebugBundle(sources, settings)
    made.add("settings.json", lambda: settings)
    made.add("process.json", lambda: describe_process(config.data_dir))
    return made


def _same(value: Any) -> Any:
    return value


def versions() -> dict[str, Any]:
    """Return the versions of everything that runs on this machine."""
    return {
        "pydanube": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "packages": dict(
            sorted((each.metadata["Name"], each.version) for each in distributions())
        ),
    }


def settings_as_json(config: BrokerConfig) -> dict[str, Any]:
    """Return the settings by their paths, as JSON has them."""
    from pydanube_broker.servers.settings.config import settings_of  # noqa: PLC0415

    def value_of(path: str) -> Any:
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name)
        return value if isinstance(value, dict | int | float) else str(value)

    return {each.path: value_of(each.path) for each in settings_of()}


def relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that concern brokers and object stores."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(VARIABLE_PREFIXES) or name.lower() in PROXY_VARIABLES
    }


def end_of_log(path: Path) -> str:
    """Return the last lines of the log *path*."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - LOG_BYTES_MAX)
        file.seek(start)
        text = file.read(LOG_BYTES_MAX).decode(errors="replace")
    # The first line is not complete.
    return text.partition("\n")[2] if start else text


def describe_process(data_dir: Path) -> dict[str, Any]:
    """
    Return what the kernel knows of the broker that uses *data_dir*.

    This disturbs the broker in no way.

    Raises:
        OSError: No broker uses the directory, or its process cannot be read.
        ValueError: The file ``LOCK`` contains no process id.
    """
    pid = int((data_dir / "LOCK").read_text())
    process = Path(f"/proc/{pid}")
    tasks = sorted((process / "task").iterdir())
    return {
        "pid": pid,
        "status": dict(_status(process / "status")),
        "limits": (process / "limits").read_text().splitlines(),
        "open_files": len(list((process / "fd").iterdir())),
        "thread_count": len(tasks),
        "threads": [_describe_thread(task) for task in tasks[:THREADS_MAX]],
    }


def _describe_thread(task: Path) -> dict[str, str]:
    try:
        status = dict(_status(task / "status"))
        waits_in = (task / "wchan").read_text()
    except OSError:
        # The thread has ended, or its state is only for administrators.
        status, waits_in = {}, ""
    return {"id": task.name, "waits_in": waits_in, **status}


def _status(path: Path) -> Iterator[tuple[str, str]]:
    lines: Iterable[str] = path.read_text().splitlines()
    for line in lines:
        name, _, value = line.partition(":")
        if name in STATUS_FIELDS:
            yield name, value.strip()
