"""The pages about the command line are what the commands say."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from support.drivers.command_lines import check_line
from support.project import ROOT

GUIDES = ROOT / "docs" / "guide"
GUIDE = (GUIDES / "command-line.md").read_text(encoding="utf-8")
COMING_FROM = (GUIDES / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["cli_reference", "api_reference"])
def test_the_references_of_commands_and_python_are_fresh(tool: str) -> None:
    check = [sys.executable, f"tools/{tool}.py", "--check"]
    done = subprocess.run(check, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_of_the_guide_can_be_typed() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line]
    assert len(lines) > 10
    for line in lines:
        check_line(line)


def test_every_command_beside_those_of_other_tools_can_be_typed() -> None:
    lines = re.findall(r"\| `(danube .*?)` \|$", COMING_FROM, re.MULTILINE)
    assert len(lines) > 20
    for line in lines:
        check_line(line)
