"""What is wrong with a pipeline: where, what, and what to do, for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Path = tuple[str | int, ...]
"""Where in the file something stands, as in ``("sinks", "orders", "options")``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that keeps a pipeline from running."""

    path: str
    """Dotted, as in ``sinks.orders.options.table``; empty for the file itself."""
    message: str
    line: int | None = None
    """From 1; None if nobody knows."""

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}: "
        path = f"{self.path}: " if self.path else ""
        return f"{line}{path}{self.message}"


class InvalidPipeline(InvalidConfig):
    """A pipeline cannot run as its file says."""

    code = "invalid_pipeline"

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{file}: {each}" for each in self.problems))


class Problems:
    """Problems as they are found; each place keeps its first one."""

    def __init__(self, line_of: Callable[[Path], int | None]) -> None:
        self._line_of = line_of
        self._found: dict[str, Problem] = {}

    def add(self, path: Path, message: str) -> None:
        """Note that something is wrong at *path*."""
        name = dotted(path)
        problem = Problem(name, message, self._line_of(path))
        self._found.setdefault(name, problem)

    def under(self, path: Path) -> bool:
        """Whether something is wrong at *path* or inside of it."""
        name = dotted(path)
        return any(
            each == name or each.startswith((f"{name}.", f"{name}["))
            for each in self._found
        )

    @property
    def found(self) -> list[Problem]:
        """All of them, in the order of the file."""
        return sorted(self._found.values(), key=lambda each: each.line or 0)


def dotted(path: Path) -> str:
    """*path* as it is shown: ``sources.orders.topics[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def listed(names: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, last = names or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last
