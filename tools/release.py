"""
Build a release: wheels, sdists, a bill of materials, and their checksums.

    python tools/release.py                  write them into dist
    python tools/release.py DIRECTORY --no-sbom

The same commit gives the same bytes, in any directory and at any time, because archives
get the time of the commit.  SOURCE_DATE_EPOCH gives another time, and allows changes
that are not committed.  The bill of materials (CycloneDX) has the packages of a fresh
installation of ``pydanube[all]``, so it changes when one of them has a new version.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("build>=1.2", "cyclonedx-bom>=7.1", "hatchling>=1.24")


def main() -> None:
    """Build everything into the directory that is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--no-sbom", action="store_true", help="No bill of materials.")
    given = parser.parse_args()
    target: Path = given.directory.resolve()
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        sys.exit(f"{target} is not empty; name another directory, or empty it")
    with tempfile.TemporaryDirectory() as directory:
        tools = _new_environment(Path(directory) / "tools", *TOOLS)
        environ = os.environ | {"SOURCE_DATE_EPOCH": _time_of_commit()}
        # Modes of files that no umask changes.
        os.umask(0o022)
        for package in sorted(ROOT.glob("packages/*/pyproject.toml")):
            # A source distribution must not have links to files of the checkout.
            source = Path(directory) / "sources" / package.parent.name
            compiled = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package.parent, source, ignore=compiled)
            build = ("-m", "build", "--no-isolation", "--outdir", target, source)
            _run(tools, *build, environ=environ)
        if not given.no_sbom:
            _write_sbom(Path(directory), tools, target, environ)
    files = sorted(target.iterdir())
    sums = "".join(
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n"
        for each in files
    )
    (target / "SHA256SUMS").write_text(sums)
    sys.stdout.write(sums)


def _time_of_commit() -> str:
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    try:
        if _git("status", "--porcelain"):
            sys.exit("the checkout has changes; commit them, or set SOURCE_DATE_EPOCH")
        return _git("log", "-1", "--format=%ct")
    except (OSError, subprocess.CalledProcessError):
        sys.exit("this is not a checkout; set SOURCE_DATE_EPOCH to the release's time")


def _git(*words: str) -> str:
    asked = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _write_sbom(
    directory: Path, tools: Path, target: Path, environ: dict[str, str]
) -> None:
    """Write what an installation of the wheels in *target* has, beside them."""
    wheels = sorted(target.glob("*.whl"))
    [client] = target.glob("pydanube-*.whl")
    others = [str(each) for each in wheels if each != client]
    installed = _new_environment(directory / "installed", f"{client}[all]", *others)
    # Nobody who installs pydanube gets pip with it.
    remove = ("-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")
    _run(installed, *remove)
    name = "-".join(client.name.split("-")[:2])
    output = target / f"{name}.cdx.json"
    options = ("--output-reproducible", "--of", "JSON", "--output-file", output)
    program = tools.with_name("cyclonedx-py")
    _run(program, "environment", *options, installed, environ=environ)
    # The place where the wheels were built is nobody's business.
    text = output.read_text()
    for wheel in wheels:
        text = text.replace(wheel.as_uri(), wheel.name)
    output.write_text(text)


def _new_environment(directory: Path, *packages: str) -> Path:
    """Return the Python of a new environment with *packages*."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    _run(python, *pip, *packages)
    return python


def _run(*words: str | Path, environ: Mapping[str, str] = os.environ) -> None:
    # Only checksums go to standard output.
    asked = [str(word) for word in words]
    subprocess.run(asked, check=True, env=environ, stdout=sys.stderr)


if __name__ == "__main__":
    main()
