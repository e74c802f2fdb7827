"""The files of this project, for tests that look at the code itself."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def modules() -> list[Path]:
    """Every Python file of the distributions; what protoc wrote is not."""
    paths = [path for each in SOURCES for path in sorted(each.rglob("*.py"))]
    return [path for path in paths if not path.stem.endswith("_pb2")]


def texts() -> Iterator[Path]:
    """Every text of ours: sources, tests, tools, documents, settings."""
    yield from sorted(path for path in ROOT.iterdir() if _is_text(path))
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
        yield from sorted(filter(_is_text, (ROOT / name).rglob("*")))


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a module; several tests share the result."""
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """How a failing test calls a file."""
    return path.relative_to(ROOT).as_posix()


def _is_text(path: Path) -> bool:
    named = path.suffix in TEXT or path.name in {"Makefile", "set-up", "run"}
    return named and path.is_file()
