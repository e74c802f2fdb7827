"""Programs that tests start, which the system or ``tools/servers`` has installed."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from support.project import ROOT

NOT_INSTALLED = "not installed: "
"""How the reason of a skip begins if the test needs something of the system."""


def extend_search_path() -> None:
    """Let this process and its children find servers, wherever they are installed."""
    # Debian installs servers where only root looks.
    added = ("/usr/sbin", str(ROOT / ".venv" / "servers" / "bin"))
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(
        [*known, *(each for each in added if each not in known)]
    )


def required_program(name: str, package: str) -> str:
    """
    Return the path of a program, or skip the test.

    Args:
        name: The name of the program.
        package: Its package in Debian.
    """
    if (found := shutil.which(name)) is None:
        skip_without(name, f"apt-get install {package}")
    return found


def skip_without(what: str, remedy: str) -> NoReturn:
    """Skip the test because *what* is missing; in continuous integration, fail it."""
    reason = f"{NOT_INSTALLED}{what} ({remedy})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def summary_of_skips(reasons: list[str]) -> str | None:
    """Return a line about the tests that were skipped for missing programs."""
    prefixes = [each.partition(NOT_INSTALLED)[2] for each in reasons]
    missing = [each for each in prefixes if each]
    if not missing:
        return None
    return f"{len(missing)} tests were skipped. Not installed: " + ", ".join(
        sorted(set(missing))
    )
