"""The types of the public names, as a type checker shows them to users."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.project import ROOT, SRC

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_programs_of_users_pass_mypy_strict(tmp_path: Path) -> None:
    programs = [ROOT / "tests" / "support" / "typed_program.py"]
    programs += sorted((ROOT / "examples").rglob("*.py"))
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    # The generated stubs of the protocol lack type arguments.
    options.append("--disable-error-code=type-arg")
    done = subprocess.run(
        # Settings of this project do not count.
        [sys.executable, "-m", "mypy", "--config-file=", *options, *map(str, programs)],
        check=False,
        cwd=tmp_path,
        env={"MYPYPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
