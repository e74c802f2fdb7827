"""The search for installed servers and Python packages."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

SEARCHED = "/usr/sbin:/usr/local/sbin:/usr/lib/rabbitmq/bin"
"""Directories of Debian's servers that may not be on the PATH."""


def find_program(name: str) -> str | None:
    """Return the path of a program; None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=SEARCHED)


def find_package(name: str) -> str | None:
    """Return the version of a Python package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing_of(
    *, programs: tuple[str, ...] = (), debian: str = "", packages: tuple[str, ...] = ()
) -> str | None:
    """Return what to install of *programs*, of a Debian package, and *packages*."""
    told = []
    if any(find_program(program) is None for program in programs):
        told.append(f"the server is not installed: apt-get install {debian}")
    if any(find_package(package) is None for package in packages):
        told.append("its client is not installed: make bench installs it")
    return "; ".join(told) or None


def versions_of(*packages: str) -> str:
    """Return Python packages with their versions."""
    return ", ".join(f"{name} {find_package(name)}" for name in packages)


def program_version(*command: str) -> str:
    """Return the version that a program prints."""
    done = subprocess.run(  # noqa: S603  # Servers that we name.
        command, check=False, capture_output=True, text=True, timeout=60
    )
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    return found[0] if found else "unknown"
