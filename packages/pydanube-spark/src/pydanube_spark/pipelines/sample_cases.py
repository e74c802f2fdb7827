"""
The tests of a pipeline: sample rows of sources, and the rows that are expected.

They are in a YAML file beside the pipeline, ``orders.test.yaml`` for ``orders.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pydanube.declarations.pure.parameters import option_text
from pydanube.declarations.pure.problems import (
    InvalidDeclaration,
    Problem,
    Problems,
    listed,
)
from pydanube.declarations.pure.reading import read_document
from pydanube.declarations.pure.sections import Scalar, parse_section
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.pipelines.graph import all_sinks
from pydanube_spark.pipelines.pure.spec import Spec


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of a source."""

    rows: list[dict[str, Any]] = []
    schema: str | None = None
    """The columns in Spark's syntax; of a decoded topic those of ``value``."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test."""

    given: dict[str, Any] = {}
    """The rows of sources by name, as ``Given`` or a list; other sources have none."""
    expect: dict[str, list[dict[str, Any]]] = {}
    """The expected rows of steps, sinks and sources by name."""
    error: str | None = None
    """A part of the error with which the pipeline must fail."""

    def given_to(self, source: str) -> Given:
        """
        Return the rows of *source*.

        Raises:
            ValidationError: They are malformed.
        """
        value = self.given.get(source, [])
        found = msgspec.convert(value, list[dict[str, Any]] | Given)
        return found if isinstance(found, Given) else Given(found)


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of tests."""

    tests: dict[str, Case]
    parameters: dict[str, Scalar] = {}
    """Values of the parameters of the pipeline."""
    environment: dict[str, str] = {}
    """Values of environment variables that the pipeline refers to."""

    @property
    def parameter_texts(self) -> dict[str, str]:
        return {name: option_text(value) for name, value in self.parameters.items()}


def default_file(pipeline: Path) -> Path:
    """Return the file with the tests of *pipeline*."""
    return pipeline.with_name(f"{pipeline.stem}.test{pipeline.suffix}")


def load_cases(file: Path) -> CaseFile:
    """
    Parse the tests in *file*.

    Raises:
        InvalidDeclaration: The file cannot be read or is invalid.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem("", f"the tests cannot be read: {reason}")
        raise InvalidDeclaration(str(file), [problem]) from error
    document = read_document(text, str(file))
    problems = Problems(document.line_of)
    found = parse_section(document.tree, CaseFile, (), problems)
    if found is not None:
        _check(found, problems)
    problems.refuse(file, str)
    assert found is not None
    return found


def check_names(cases: CaseFile, spec: Spec, file: Path) -> None:
    """
    Check that *cases* name sources, steps and sinks that *spec* has.

    Raises:
        InvalidDeclaration: A name is unknown; the error has all problems.
    """
    problems = Problems(lambda _: None)
    known = [*spec.sources, *spec.steps, *(name for name, _, _ in all_sinks(spec))]
    for name, case in cases.tests.items():
        for part, names in (("given", list(spec.sources)), ("expect", known)):
            given: Mapping[str, Any] = getattr(case, part)
            for each in given.keys() - set(names):
                near = did_you_mean(each, names) or f"; there are {listed(names)}"
                what = "source" if part == "given" else "source, step or sink"
                message = f"the pipeline has no {what} {each}{near}"
                problems.add(("tests", name, part, each), message)
    problems.refuse(file, str)


def _check(cases: CaseFile, problems: Problems) -> None:
    if not cases.tests:
        problems.add(("tests",), "there must be at least one")
    for name, case in cases.tests.items():
        if not case.expect and case.error is None:
            found = "expects nothing; set expect to rows by step or sink, or error"
            problems.add(("tests", name), found)
        for source in case.given:
            try:
                case.given_to(source)
            except msgspec.ValidationError as error:
                found = f"must be a list of rows, or {{schema: …, rows: […]}}: {error}"
                problems.add(("tests", name, "given", source), found)
