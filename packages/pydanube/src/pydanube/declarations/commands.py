"""The seam for groups of commands of other packages, which `danube` then has."""

from __future__ import annotations

from collections.abc import Mapping

from pydanube.model.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSet:
    """
    The commands of a package.

    A command is the Typer application ``app`` of a module of *package* with its name,
    in which underscores stand for hyphens.  It is imported when it is run.  The set
    itself is imported for `danube --help`, so its module should import little.
    """

    package: str
    """The package with a module for each command."""
    panels: Mapping[str, Mapping[str, str]]
    """By the title of their part of the list, the commands and the first sentence of
    their help."""
    uses_pandas: bool = False
    """Whether the commands may import pandas; it would delay other commands."""
