"""The prose and the names of the project: plain beginnings, and no retired words."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from support.project import ROOT, lines_with, modules, name_of, text_of, texts, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGINNING = re.compile(r"\s*(Who|Whom|Whose|Whoever|So|Of|That|What|Whatever)\b")
"""A sentence that begins like this continues another one, or is a riddle."""

BEGINNING_IN_QUOTES = re.compile(r"[\"'](?:\\\n)?" + BEGINNING.pattern)
"""The beginning of a string in a file that may have such a docstring."""

ARGUMENT = re.compile(r"^ +\w+(?: \([^)]+\))?: (.+)", re.MULTILINE)
"""The help of a command's argument, in the docstring."""

RETIRED = re.compile(
    r"\b(whoever|whomever|whom|stretch(es)?|Stretch(es)?|Aside|Gates?|SubscriptionInTurns"
    r"|Hall|Spare|Asked|Patience|Places?|Letters?|doors?|Doors?|StreamDoor|ClientDoor"
    r"|WrittenSchemas|SchemaGate|TaskPlace|SparkWords|CheckpointWords)\b"
)
"""Words that gave way to those of the glossary."""

EXEMPT = {ROOT / "LICENSE", ROOT / "CHANGELOG.md"}


def test_docstrings_begin_plainly() -> None:
    riddles = [
        f"{name_of(path)}:{line}: {text.strip().splitlines()[0]}"
        for path in modules()
        if BEGINNING_IN_QUOTES.search(text_of(path))
        for line, text in _docstrings(path)
        if BEGINNING.match(text)
    ]
    assert riddles == []


def test_help_texts_begin_plainly() -> None:
    riddles = [
        f"{name_of(path)}:{line}: {text.strip().splitlines()[0]}"
        for path in ROOT.glob("packages/*/src/**/commands/*.py")
        for line, text in _help_texts(path)
        if BEGINNING.match(text)
    ]
    assert riddles == []


def test_retired_words_stay_retired() -> None:
    found = [
        line
        for path in texts()
        if path not in EXEMPT and path.name != "test_english.py"
        for line in lines_with(RETIRED, path)
    ]
    assert found == []


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """All docstrings, also those under attributes and settings."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                yield node.lineno, value


def _help_texts(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.keyword)
            and node.arg in {"help", "epilog", "short_help"}
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.lineno, node.value.value
    for line, text in _docstrings(path):
        for match in ARGUMENT.finditer(text):
            yield line, match[1]
