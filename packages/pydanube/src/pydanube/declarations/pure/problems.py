"""The problems of a declared file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path as FilePath

from pydanube.model.errors import InvalidConfig
from pydanube.model.lazy_dataclasses import dataclass

Path = tuple[str | int, ...]
"""A path in the file, such as ``("sinks", "orders", "options")``."""

UNKNOWN = "unknown"
"""The beginning of the message about a name that nothing has."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a file is refused."""

    path: str
    """Dotted, such as ``sinks.orders.options.table``; empty for the file itself."""
    message: str
    line: int | None = None
    """From 1; None if unknown."""

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}: "
        path = f"{self.path}: " if self.path else ""
        return f"{line}{path}{self.message}"


class InvalidDeclaration(InvalidConfig):
    """A file that declares pipelines or connectors is invalid."""

    code = "invalid_declaration"

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{file}: {each}" for each in self.problems))


class Problems:
    """A collector of problems that keeps the first one of each path."""

    def __init__(
        self,
        line_of: Callable[[Path], int | None],
        shown_at: Callable[[Path], Path] = lambda path: path,
    ) -> None:
        """*shown_at* returns the path that users know for a path."""
        self._line_of = line_of
        self._shown_at = shown_at
        self._found: dict[Path, Problem] = {}

    def add(self, path: Path, message: str) -> None:
        """Add a problem at *path*, unless there is one."""
        shown = self._shown_at(path)
        problem = Problem(dotted(shown), message, self._line_of(shown))
        self._found.setdefault(path, problem)

    def under(self, path: Path) -> bool:
        """Return whether there is a problem at *path* or below it."""
        return any(each[: len(path)] == path for each in self._found)

    def leave_out_values(self, is_left_out: Callable[[Path], bool]) -> None:
        """Forget what is wrong with the values at some paths; names stay wrong."""
        self._found = {
            path: each
            for path, each in self._found.items()
            if each.message.startswith(UNKNOWN) or not is_left_out(path)
        }

    def refuse(self, file: FilePath, redact: Callable[[str], str]) -> None:
        """
        Raise if there are problems with *file*; *redact* removes secrets from a text.

        Raises:
            InvalidDeclaration: There are problems.
        """
        if self._found:
            raise InvalidDeclaration(
                str(file),
                [replace(each, message=redact(each.message)) for each in self.found],
            )

    @property
    def found(self) -> list[Problem]:
        """Return all problems, in the order of the file."""
        return sorted(self._found.values(), key=lambda each: each.line or 0)


def dotted(path: Path) -> str:
    """Return *path* as text, such as ``sources.orders.topics[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def listed(names: Iterable[str]) -> str:
    """Return *names* as ``a, b and c``."""
    *first, last = names or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last


def option_path(path: Path, options: Iterable[str], text: str) -> Path | None:
    """Return the path of that option of the part at *path* which *text* names."""
    for name in sorted(options, key=len, reverse=True):
        if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE):
            return (*path, "options", name)
    return None
