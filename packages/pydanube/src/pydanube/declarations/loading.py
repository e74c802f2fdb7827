"""The loading of declared files, up to the checks of what they declare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydanube.declarations.pure.parameters import Substitution
from pydanube.declarations.pure.problems import Problems
from pydanube.declarations.pure.reading import Document, read_file
from pydanube.declarations.secret_files import secret_files_of
from pydanube.model.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """A file that was read, and what its checks need."""

    path: Path
    document: Document
    problems: Problems
    substitution: Substitution

    def refuse(self) -> None:
        """
        Raise the problems that were found so far, without secrets.

        Raises:
            InvalidDeclaration: There are problems.
        """
        self.problems.refuse(self.path, self.substitution.redact)


def open_file(
    path: Path, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> DeclaredFile:
    """
    Read the file *path*, with *parameters* and the secrets of *environment*.

    Raises:
        InvalidDeclaration: It cannot be read, is not YAML, or not a mapping.
    """
    path = path.resolve()
    return open_document(read_file(path), path, parameters, environment)


def open_document(
    document: Document,
    path: Path,
    parameters: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    keeps_references: bool = False,
) -> DeclaredFile:
    """
    Return *document* as the content of the file *path*, which need not exist.

    With *keeps_references*, references to secrets stay what they are.
    """
    problems = Problems(document.line_of)
    substitution = Substitution(
        document.tree,
        parameters,
        environment,
        problems,
        secret_files_of(environment),
        keeps_references=keeps_references,
    )
    return DeclaredFile(path, document, problems, substitution)
