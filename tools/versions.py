"""
Run the fast tests of the client with each version of Python that is here.

    python tools/versions.py            the versions from 3.11 to 3.14 that are found
    python tools/versions.py 3.13       only this one

Each version has an environment in .venv-versions.  A version that is not installed is
named at the end.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".venv-versions"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = (
    "packages/pydanube[schemas,protoc,objects,redis,otel]",
    "packages/pydanube-broker[etcd]",
    "packages/pydanube-cli",
    "packages/pydanube-kafka",
    "packages/pydanube-mqtt",
    "packages/pydanube-zookeeper",
)
TOOLS = (
    *("hypothesis", "pytest", "pytest-timeout", "pytest-xdist"),
    *("httpx", "jsonschema", "numpy", "opentelemetry-sdk", "pydantic"),
)
TESTS = "packages/pydanube/tests"
NEEDING_SPARK = (
    "declarations/test_secret_files.py",
    "model/test_extras.py",
    "model/test_plugins.py",
    "wire/files/test_iceberg_metadata.py",
)
"""Tests that need the packages of pipelines, which are not installed."""
SELECTED = "not slow and not e2e and not soak"


def main(arguments: list[str]) -> int:
    """Test the versions; the exit code is 1 if tests have failed."""
    failed, missing = [], []
    for version in arguments or VERSIONS:
        python = find_python(version)
        if python is None:
            missing.append(version)
        elif not is_good(version, python):
            failed.append(version)
    if missing:
        print(f"Not installed here: Python {', '.join(missing)}")
    if failed:
        print(f"Tests failed with Python {', '.join(failed)}")
    return 1 if failed else 0


def find_python(version: str) -> str | None:
    """Return the program of a version, on the path or of pyenv, if there is one."""
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"))
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(each / "bin" / "python") for each in reversed(of_pyenv)]
    for each in candidates:
        # A shim of pyenv may lead to no version.
        if (
            each is not None
            and not subprocess.run([each, "-V"], check=False).returncode
        ):
            return each
    return None


def is_good(version: str, python: str) -> bool:
    """Install the packages for a version, and return whether their tests pass."""
    environment = ENVIRONMENTS / version
    inside = str(environment / "bin" / "python")
    if not Path(inside).exists():
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
    editable = [word for each in PACKAGES for word in ("-e", each)]
    subprocess.run(
        [inside, "-m", "pip", "install", "--quiet", *editable, *TOOLS],
        check=True,
        cwd=ROOT,
    )
    command = [inside, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    ignored = [f"--ignore={TESTS}/{each}" for each in NEEDING_SPARK]
    tests = [*command, "-m", SELECTED, *ignored, TESTS]
    return not subprocess.run(tests, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
