"""What was generated is what its sources give."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.project import ROOT


@pytest.mark.parametrize("tool", ["proto", "sync_facades"])
def test_generated_code_is_fresh(tool: str) -> None:
    check = [sys.executable, f"tools/{tool}.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
