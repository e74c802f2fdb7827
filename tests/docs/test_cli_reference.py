"""The page about the command line is what the commands say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.project import ROOT


@pytest.mark.slow
def test_the_command_line_reference_is_fresh() -> None:
    check = [sys.executable, "tools/cli_reference.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
