"""What is installed on this machine: servers, and packages of Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

SEARCHED = "/usr/sbin:/usr/local/sbin:/usr/lib/rabbitmq/bin"
"""Where servers of Debian packages are that are not on everybody's PATH."""


def find_program(name: str) -> str | None:
    """The path of a program; None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=SEARCHED)


def find_package(name: str) -> str | None:
    """The version of a package of Python; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing_of(
    *, programs: tuple[str, ...] = (), debian: str = "", packages: tuple[str, ...] = ()
) -> str | None:
    """What to install of *programs*, which a Debian package has, and of *packages*."""
    told = []
    if any(find_program(program) is None for program in programs):
        told.append(f"the server is not installed: apt-get install {debian}")
    if any(find_package(package) is None for package in packages):
        told.append("its client is not installed: make bench installs it")
    return "; ".join(told) or None


def versions_of(*packages: str) -> str:
    """Packages of Python with their versions."""
    return ", ".join(f"{name} {find_package(name)}" for name in packages)


def told_version(*command: str) -> str:
    """The version in what a program says about itself."""
    done = subprocess.run(  # noqa: S603  # Servers that we name.
        command, check=False, capture_output=True, text=True, timeout=60
    )
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    return found[0] if found else "unknown"
