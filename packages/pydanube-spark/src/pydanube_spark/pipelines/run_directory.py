"""
The directory in which a user finds the runs of all pipelines.

It has one small file for each state directory, because those are beside the pipelines'
files.  The name of the directory is that of the variable ``DANUBE_STATE``, or
``danube`` in ``XDG_STATE_HOME`` or in ``~/.local/state``.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pydanube.model.errors import Conflict, NotFound
from pydanube_spark.pipelines.state import StateDirectory, replace_file

log = logging.getLogger(__name__)

STATE_VARIABLE = "DANUBE_STATE"

ENTRIES_MAX = 500
"""How many pipelines are remembered; the oldest ones are dropped."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that was run."""

    pipeline: str
    file: str
    state_directory: str

    @property
    def state(self) -> StateDirectory:
        """Return the state of its runs."""
        return StateDirectory(Path(self.state_directory))


class RunDirectory:
    """The pipelines that a user has run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, entry: Entry) -> None:
        """
        Remember *entry*.

        A run goes on if this fails, for example because the home directory is
        read-only, as it often is in containers.
        """
        digest = hashlib.sha256(entry.state_directory.encode()).hexdigest()[:12]
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = f"{entry.pipeline}-{digest}.json"
            replace_file(self.path / name, msgspec.json.encode(entry))
            for old in self._files()[ENTRIES_MAX:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.warning("'danube pipeline list' does not show this run: %s", error)

    def entries(self) -> list[Entry]:
        """Return all pipelines whose state still exists, the latest run first."""
        found = []
        for file in self._files():
            try:
                entry = msgspec.json.decode(file.read_bytes(), type=Entry)
            except (OSError, ValueError):
                continue
            if Path(entry.state_directory).is_dir():
                found.append(entry)
            else:
                file.unlink(missing_ok=True)
        return found

    def find(self, name: str) -> Entry:
        """
        Return the pipeline *name*.

        Raises:
            NotFound: There is none.
            Conflict: Several files have this name.
        """
        found = [each for each in self.entries() if each.pipeline == name]
        if not found:
            raise NotFound(
                f"there is no file {name}, and no pipeline of this name was run; "
                "'danube pipeline list' shows those that were"
            )
        if len(found) > 1:
            files = ", ".join(each.file for each in found)
            raise Conflict(
                f"several pipelines are called {name}; name the file: {files}"
            )
        return found[0]

    def _files(self) -> list[Path]:
        """Return the files of entries, the latest first."""
        try:
            times = {
                each: each.stat().st_mtime_ns
                for each in self.path.glob("*.json")
                if not each.name.startswith(".")
            }
        except OSError:
            return []
        return sorted(times, key=times.__getitem__, reverse=True)


def user_state(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of what programs of this user know of each other."""
    own = environment.get(STATE_VARIABLE, "")
    if own:
        return Path(own)
    given = environment.get("XDG_STATE_HOME", "")
    # The specification says that relative paths are ignored.
    root = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return root / "danube"


def run_directory(environment: Mapping[str, str] = os.environ) -> RunDirectory:
    """Return the directory that *environment* names."""
    return RunDirectory(user_state(environment) / "pipelines")
