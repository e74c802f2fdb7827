"""The files of this project, for tests that look at the code itself."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("packages/*/src"))
"""The directory of the source of each distribution."""

TEXT = {
    ".cfg",
    ".ini",
    ".json",
    ".md",
    ".proto",
    ".py",
    ".pyi",
    ".toml",
    ".txt",
    ".yml",
}


@cache
def modules() -> list[Path]:
    """Every Python file of the distributions; what protoc wrote is not."""
    paths = [path for each in SOURCES for path in sorted(each.rglob("*.py"))]
    return [path for path in paths if not path.stem.endswith("_pb2")]


@cache
def texts() -> list[Path]:
    """Every text of ours: sources, tests, tools, documents, settings."""
    found = sorted(path for path in ROOT.iterdir() if _is_text(path))
    for name in (
        "packages",
        "examples",
        "bench",
        "tests",
        "tools",
        "docs",
        ".ci",
        ".github",
    ):
        found += sorted(filter(_is_text, (ROOT / name).rglob("*")))
    return found


@cache
def files_of_tests() -> list[Path]:
    """Every Python file of the tests."""
    return [*ROOT.glob("packages/*/tests/**/*.py"), *ROOT.glob("tests/**/*.py")]


@cache
def text_of(path: Path) -> str:
    """Read a text; several tests share the result."""
    return path.read_text(encoding="utf-8")


def lines_with(pattern: re.Pattern[str], path: Path) -> list[str]:
    """Return the lines of a text in which *pattern* is, each with its place."""
    text = text_of(path)
    # Few texts have any: lines are looked at only there.
    if pattern.search(text) is None:
        return []
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a module; several tests share the result."""
    return ast.parse(text_of(path))


def name_of(path: Path) -> str:
    """How a failing test calls a file."""
    return path.relative_to(ROOT).as_posix()


def _is_text(path: Path) -> bool:
    named = path.suffix in TEXT or path.name in {"Makefile", "set-up", "run"}
    return named and path.is_file()
