"""Imports go down only; the contracts are in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

COMMAND = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]


def test_imports_go_down_only() -> None:
    done = subprocess.run(
        COMMAND, check=False, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
