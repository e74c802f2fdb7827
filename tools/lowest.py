"""
Run the fast tests with the oldest versions that pyproject.toml allows.

Creates .venv-lowest in the checkout, with every lower bound of the client, the
command line, the broker and the test tools as the version to install.  Spark and the
demo bring versions of their own; the ordinary tests cover them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CORE = ("schemas", "cli", "security", "broker", "objects", "redis", "etcd", "zookeeper")
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "httpx", "moto")
# They need Spark, or what else the demo and the benchmarks need.
UNITS_LEFT_OUT = ("reader", "spark", "tables", "sinks", "demo", "bench")
LEFT_OUT = (
    *(f"tests/unit/{each}" for each in UNITS_LEFT_OUT),
    *("tests/tidy", "tests/docs", "tests/e2e", "tests/conformance/test_lake_table.py"),
)


def main() -> int:
    """Install, test, and give the exit code of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(each for e in CORE for each in extras[e])]
    wanted = [each for each in map(Requirement, listed) if each.name != "pydanube"]
    wanted += [each for each in map(Requirement, extras["dev"]) if each.name in TOOLS]
    directory = ROOT / ".venv-lowest"
    venv.create(directory, with_pip=True, clear=True)
    python = str(directory / "bin" / "python")
    pinned = [_lowest(requirement) for requirement in wanted]
    sys.stdout.write(f"Installing {', '.join(pinned)}\n")
    sys.stdout.flush()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *pinned, "psutil"], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    ignored = [f"--ignore={path}" for path in LEFT_OUT]
    # It wants every extra.
    ignored.append(
        "--deselect=tests/unit/model/test_extras.py::"
        "test_require_passes_if_the_packages_are_installed"
    )
    tests = [python, "-m", "pytest", "-q", "-m", "not slow and not e2e", *ignored]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


def _lowest(requirement: Requirement) -> str:
    bounds = [each.version for each in requirement.specifier if each.operator == ">="]
    assert len(bounds) == 1, f"{requirement} has no lower bound"
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={bounds[0]}"


if __name__ == "__main__":
    raise SystemExit(main())
