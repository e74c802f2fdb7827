"""Pairs of schemas with the verdicts that are expected of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from support.project import ROOT

CORPORA = ROOT / "tests" / "corpora"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two schemas; the verdicts are ``ok`` or the rule that is broken."""

    what: str
    old: Any
    new: Any
    backward: str
    forward: str

    def __str__(self) -> str:
        return self.what


def pairs_of(language: str) -> list[Pair]:
    """The corpus of one schema language."""
    text = (CORPORA / f"{language}.yaml").read_text()
    return [Pair(**each) for each in yaml.safe_load(text)]
