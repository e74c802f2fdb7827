"""What was generated is what its sources give."""

from __future__ import annotations

import subprocess
import sys

from support.project import ROOT


def test_generated_protobuf_code_is_fresh() -> None:
    check = [sys.executable, "tools/proto.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
