"""A release: the same source gives the same bytes, and the list of what is in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from importlib.metadata import requires, version
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from pydanube.model.version import __version__
from support.project import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SOURCES = (
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"),
    ".gitignore",
)
DIRECTORIES = ("packages", "bench", "deploy", "docs", "examples", "tests", "tools")


def copy_sources(target: Path) -> None:
    """Copy what a release is built from; the copies have other times and modes."""
    target.mkdir()
    for name in SOURCES:
        shutil.copyfile(ROOT / name, target / name)
    for name in DIRECTORIES:
        shutil.copytree(
            ROOT / name,
            target / name,
            copy_function=shutil.copyfile,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
        )
    for path in target.rglob("*.py"):
        path.chmod(0o600)


def release(source: Path, target: Path, *options: str) -> dict[str, str]:
    """Build a release, and return the checksums of its files."""
    done = subprocess.run(
        [sys.executable, str(source / "tools/release.py"), str(target), *options],
        check=False,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (target / "SHA256SUMS").read_text().splitlines()
    sums = {name: checksum for checksum, name in map(str.split, lines)}
    for name, checksum in sums.items():
        assert sha256((target / name).read_bytes()).hexdigest() == checksum
    return sums


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_release_has_a_wheel_and_the_source_of_each_package(tmp_path: Path) -> None:
    files = release(ROOT, tmp_path / "dist", "--no-sbom")
    names = [path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")]
    expected = {
        f"{name.replace('-', '_')}-{__version__}{end}"
        for name in names
        for end in (".tar.gz", "-py3-none-any.whl")
    }
    assert files.keys() == expected
    for name in files:
        if name.endswith(".tar.gz"):
            with tarfile.open(tmp_path / "dist" / name) as source:
                assert all(each.isfile() for each in source.getmembers())


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_builds_of_the_same_source_are_the_same(tmp_path: Path) -> None:
    copy_sources(tmp_path / "copy")
    first = release(ROOT, tmp_path / "first")
    second = release(tmp_path / "copy", tmp_path / "second", "--no-sbom")
    sbom = f"pydanube-{__version__}.cdx.json"
    assert first.keys() == second.keys() | {sbom}
    assert {name: first[name] for name in second} == second
    text = (tmp_path / "first" / sbom).read_text()
    assert str(tmp_path) not in text
    listed = {each["name"]: each for each in json.loads(text)["components"]}
    assert listed["pydanube"]["version"] == __version__
    assert {"pyarrow", "grpcio", "opendal"} <= listed.keys()
    assert "pip" not in listed


def test_the_version_of_each_package_is_that_of_the_code() -> None:
    names = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
    assert len(names) == 9
    assert {name: version(name) for name in names} == dict.fromkeys(names, __version__)
    pinned = {
        f"{each.name} {each.specifier}"
        for name in names
        for each in map(Requirement, requires(name) or ())
        if each.name in names and str(each.specifier)
    }
    assert {each.rpartition("=")[2] for each in pinned} == {__version__}
