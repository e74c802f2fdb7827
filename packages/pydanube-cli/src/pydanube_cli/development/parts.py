"""The parts of a system that a directory describes, and the commands that run them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass

SETTINGS = "broker.yaml"
DATA = ".danube"
_YAML = ("*.yaml", "*.yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process of a system."""

    name: str
    command: Sequence[str]
    is_broker: bool = False


def find_parts(
    directory: Path,
    *,
    installed: Collection[str],
    broker_options: Sequence[str] = (),
    has_console: bool = True,
) -> list[Part]:
    """
    Return the parts of the system in *directory*, the broker first.

    ``broker.yaml`` has the settings of the broker, ``connectors`` and ``pipelines``
    have files that declare these, and ``programs`` has programs in Python.

    Args:
        installed: The commands of `danube` that there are.
        broker_options: More options of `danube broker`.

    Raises:
        InvalidRequest: There is no such directory, or a command is not installed.
    """
    if not directory.is_dir():
        raise InvalidRequest(
            f"there is no directory {directory}: 'danube up --init {directory}' writes "
            "a small system"
        )
    settings = directory / SETTINGS
    config = ["--config", str(settings)] if settings.exists() else []
    data = ["--data-dir", str(directory / DATA)]
    broker = _danube("broker", *data, *config, *broker_options)
    parts = [Part(name="broker", command=broker, is_broker=True)]
    if has_console and "console" in installed:
        parts.append(Part(name="console", command=_danube("console")))
    connectors = _files(directory / "connectors", *_YAML)
    pipelines = _files(directory / "pipelines", *_YAML)
    for what, files in (("connect", connectors), ("pipeline", pipelines)):
        if files and what not in installed:
            extra = {"connect": "connect", "pipeline": "pipelines"}[what]
            raise InvalidRequest(
                f"{files[0]} needs 'danube {what}': pip install 'pydanube[{extra}]'"
            )
    if connectors:
        command = _danube("connect", "run", *map(str, connectors))
        parts.append(Part(name="connectors", command=command))
    parts += [
        Part(name=each.stem, command=_danube("pipeline", "run", str(each)))
        for each in pipelines
    ]
    parts += [
        Part(name=each.stem, command=[sys.executable, "-u", str(each)])
        for each in _files(directory / "programs", "*.py")
    ]
    return parts


def _danube(*arguments: str) -> list[str]:
    return [sys.executable, "-u", "-m", "pydanube_cli", *arguments]


def _files(directory: Path, *patterns: str) -> list[Path]:
    return sorted(path for each in patterns for path in directory.glob(each))
