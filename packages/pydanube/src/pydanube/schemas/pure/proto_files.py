"""
Protobuf definitions of several files in one text.

A ``.proto`` file may import others, for example those that are registered as subjects
of their own.  Clients that validate and decode need all of them, so a definition has
them before its main file: a line ``//danube:file {"name": …}`` stands before the text
of each file, and a line ``//danube:main`` before the main one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from pydanube.model.errors import InvalidSchema

FILES_MAX = 100
"""The most files that a definition has beside its main file."""
NAME_LENGTH_MAX = 200
"""The longest name of a file, with its folders."""

_FILE = "//danube:file "
_MAIN = "//danube:main"
_MARKER = re.compile(r"^//danube:(?:file |main$)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class ProtoFile(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A file that a Protobuf definition imports."""

    name: str
    """The name in import statements."""
    subject: str = ""
    """The subject that has the file, if the main file refers to it."""
    version: int = 0
    """The version of that subject."""


Files = dict[ProtoFile, str]
"""The texts of files."""


def split_files(text: str) -> tuple[Files, str]:
    """
    Return the files of a definition, and the text of its main file.

    Raises:
        InvalidSchema: The lines before the files are malformed, names are not allowed
            or are repeated, or there are too many files.
    """
    if not text.startswith(_FILE):
        return {}, text
    found: Files = {}
    header, is_main, lines = "", False, list[str]()
    for line in text.split("\n"):
        if is_main or not _MARKER.match(line):
            lines.append(line)
            continue
        if header:
            _add(found, header, "\n".join(lines))
        header, is_main, lines = line, line == _MAIN, []
    if not is_main:
        raise InvalidSchema(f"the Protobuf schema has files, and no line {_MAIN}")
    return found, "\n".join(lines)


def join_files(files: Files, main: str) -> str:
    """
    Return the definition of *main* and the *files* that it needs.

    Raises:
        InvalidSchema: Texts have lines that stand before files, or as `split_files`.
    """
    if any(map(_MARKER.search, (main, *files.values()))):
        raise InvalidSchema("lines of a .proto file cannot begin with //danube:file")
    if not files:
        return main
    parts = [
        f"{_FILE}{msgspec.json.encode(file).decode()}\n{text}"
        for file, text in files.items()
    ]
    complete = "\n".join([*parts, f"{_MAIN}\n{main}"])
    assert split_files(complete) == (files, main)
    return complete


def names_of(files: Iterable[ProtoFile]) -> set[str]:
    """Return the names of *files*."""
    return {each.name for each in files}


def _add(found: Files, header: str, text: str) -> None:
    try:
        file = msgspec.json.decode(header.removeprefix(_FILE), type=ProtoFile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSchema(f"the line {header!r:.100} is malformed: {error}") from None
    if not _NAME.fullmatch(file.name) or len(file.name) > NAME_LENGTH_MAX:
        raise InvalidSchema(
            f"the file name {file.name!r:.100} is not allowed: names are relative, and "
            "have letters, digits, dots, hyphens and underscores, and at most "
            f"{NAME_LENGTH_MAX} characters"
        )
    if file.name.startswith("google/protobuf/"):
        raise InvalidSchema(f"{file.name} is a file of Protobuf itself")
    if file.name in names_of(found):
        raise InvalidSchema(f"the Protobuf schema has two files {file.name}")
    if len(found) == FILES_MAX:
        raise InvalidSchema(f"a Protobuf schema has at most {FILES_MAX} other files")
    found[file] = text
