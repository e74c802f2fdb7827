"""Imports go down only; the contracts are in the files pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

COMMAND = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]


CONTRACTS = [
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "pyproject.toml",
        *sorted(ROOT.glob("packages/*/pyproject.toml")),
    )
    if "[tool.importlinter]" in path.read_text()
]


@pytest.mark.parametrize("contracts", CONTRACTS)
def test_imports_go_down_only(contracts: str) -> None:
    done = subprocess.run(
        [*COMMAND, contracts],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
