"""The types of the public names, as a type checker shows them to users."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.project import ROOT, SOURCES
from support.servers.programs import skip_without

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_ONE_SCRIPT = {"delta", "iceberg", "lakehouse", "sinks", "spark", "spark-write"}
"""The pages whose blocks build on each other."""
NOT_INSTALLED = {"danube-clients"}
"""The pages with programs for another client."""


SKIPPED = (
    "cryptography",
    "hypothesis",
    "lance_namespace",
    "lance_namespace_urllib3_client",
    "numpy",
    "pyparsing",
    "rich",
    "sqlalchemy",
)
"""Packages that no program imports.  Those that it imports do, and mypy would take more
time for them than for everything else."""

LENIENT = """\
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: disable-error-code=import-untyped
"""
"""In examples, functions may lack annotations; what they do is checked."""


@pytest.mark.slow
def test_programs_of_users_pass_mypy_strict(tmp_path: Path) -> None:
    programs = [ROOT / "tests" / "support" / "drivers" / "typed_program.py"]
    programs += sorted(ROOT.glob("examples/[!d]*/**/*.py"))
    programs += sorted(ROOT.glob("examples/declarative/**/*.py"))
    for name, code in examples():
        path = tmp_path / f"{name}.py"
        path.write_text(LENIENT + code)
        programs.append(path)
    # Settings of this project do not count.
    settings = tmp_path / "mypy.ini"
    skipped = ",".join(f"{each}.*" for each in SKIPPED)
    settings.write_text(f"[mypy]\n[mypy-{skipped}]\nfollow_imports = skip\n")
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    # The generated stubs of the protocol lack type arguments.
    options.append("--disable-error-code=type-arg")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            f"--config-file={settings}",
            *options,
            *map(str, programs),
        ],
        check=False,
        cwd=tmp_path,
        env={"MYPYPATH": os.pathsep.join(map(str, SOURCES))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"no issues found in {len(programs)} source files" in done.stdout
    assert len(programs) > 50


PYRIGHT = {
    "typeCheckingMode": "strict",
    # In examples, functions may lack annotations, and Arrow has no types.
    "reportMissingParameterType": False,
    "reportMissingTypeArgument": False,
    "reportMissingTypeStubs": False,
    "reportUnknownArgumentType": False,
    "reportUnknownLambdaType": False,
    "reportUnknownMemberType": False,
    "reportUnknownParameterType": False,
    "reportUnknownVariableType": False,
    # The blocks of a page that build on each other import what they need.
    "reportDuplicateImport": False,
    # Deprecations of Python's own library differ between its versions.
    "reportDeprecated": False,
    "reportUnusedFunction": False,
}
"""The rules of Pyright that programs of users keep."""


@pytest.mark.soak
@pytest.mark.smoke
def test_programs_of_users_pass_pyright_strict(tmp_path: Path) -> None:
    pyright = ROOT / ".venv" / "pyright" / "bin" / "basedpyright"
    if not pyright.exists():
        skip_without("Pyright", "tools/servers")
    programs = [ROOT / "tests" / "support" / "drivers" / "typed_program.py"]
    programs += sorted(ROOT.glob("examples/[!d]*/**/*.py"))
    copies = [(path.stem, path.read_text(encoding="utf-8")) for path in programs]
    count = 0
    for name, code in [*copies, *examples()]:
        (tmp_path / f"{name}.py").write_text(code)
        count += 1
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    done = subprocess.run(
        [str(pyright), "--outputjson", "--pythonpath", sys.executable, str(tmp_path)],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    problems = [
        f"{each['file'].rpartition('/')[2]}:{each['range']['start']['line'] + 1}: "
        f"{each['message']}"
        for each in report["generalDiagnostics"]
    ]
    assert problems == []
    assert report["summary"]["filesAnalyzed"] == count > 50


def examples() -> Iterator[tuple[str, str]]:
    """Yield the programs in the README and the guides with names."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        blocks = BLOCK.findall(page.read_text())
        if page.stem in OF_ONE_SCRIPT:
            blocks = ["\n".join(blocks)]
        for number, code in enumerate(blocks, 1):
            # A block that imports nothing is a part of a program elsewhere.
            if page.stem not in NOT_INSTALLED and "import " in code:
                yield f"{page.stem.lower().replace('-', '_')}_{number}", code
