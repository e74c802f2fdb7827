"""The parsing of pipeline files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pydanube.declarations.loading import open_file
from pydanube.declarations.pure.reading import Document
from pydanube_spark.pipelines.graph import Graph, graph_of
from pydanube_spark.pipelines.pure.mirrors import with_mirrors
from pydanube_spark.pipelines.pure.new_columns import with_new_columns
from pydanube_spark.pipelines.pure.spec import (
    Sink,
    Spec,
    Trigger,
    parse_spec,
    parse_trigger,
)
from pydanube_spark.pipelines.rules import Rules
from pydanube_spark.pipelines.state import StateDirectory
from pydanube_spark.reader.pure.read_options import URL_DEFAULT

BROKER_VARIABLE = "DANUBE_URL"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A parsed and checked pipeline file."""

    file: Path
    spec: Spec
    broker: str
    """The broker of sources and sinks that do not set their own."""
    redact: Callable[[str], str]
    """Replaces secrets in a text."""
    document: Document
    trigger: Trigger

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def directory(self) -> Path:
        """Return the directory that relative paths refer to."""
        return self.file.parent

    @property
    def state(self) -> StateDirectory:
        """Return the state of the pipeline's runs."""
        return _state_of(self.file, self.name, self.spec.checkpoints.path)

    def graph(self, schemas: Mapping[str, str] | None = None) -> Graph:
        """Return the graph of the pipeline; see ``graph_of``."""
        return graph_of(self.spec, self.read_sql, schemas)

    def graph_shown(self) -> Graph:
        """Return the graph without secrets, which parameters may have put there."""
        found = self.graph()
        nodes = [replace(each, what=self.redact(each.what)) for each in found.nodes]
        return replace(found, nodes=nodes)

    def read_sql(self, file: str) -> str:
        """Return the text of an SQL file, which is relative to the directory."""
        return (self.directory / file).read_text("utf-8")

    def trigger_of(self, sink: Sink) -> Trigger:
        """Return the trigger of *sink*."""
        return self.trigger if sink.trigger is None else parse_trigger(sink.trigger)


def load(
    file: Path,
    *,
    parameters: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    tables: Mapping[str, Sequence[str]] | None = None,
) -> Pipeline:
    """
    Parse and check *file* with *parameters* and the secrets of *environment*.

    *tables* are those that the patterns of mirrors stand for, by default those of the
    last run.  This neither connects to servers nor runs user code.

    Raises:
        InvalidDeclaration: The file is invalid; the error has all problems.
    """
    environment = environment or {}
    declared = open_file(file, parameters or {}, environment)
    document, problems = declared.document, declared.problems
    tree = declared.substitution.substitute(document.tree)
    spec = parse_spec(tree, problems)
    if spec is None:
        declared.refuse()
    assert spec is not None
    state = _state_of(declared.path, spec.name, spec.checkpoints.path)
    if tables is None:
        tables = state.read_mirrored_tables()
    spec = with_mirrors(spec, problems, tables)
    spec = with_new_columns(spec, state.read_new_columns())
    broker = spec.broker or environment.get(BROKER_VARIABLE) or URL_DEFAULT
    Rules(spec, broker, declared.path.parent, problems).check()
    declared.refuse()
    redact, trigger = declared.substitution.redact, parse_trigger(spec.trigger)
    return Pipeline(declared.path, spec, broker, redact, document, trigger)


def locate(
    file: Path, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, StateDirectory]:
    """
    Return the name and the state directory of the pipeline in *file*.

    The rest of the file may be invalid, and secrets may be missing.

    Raises:
        InvalidDeclaration: The name or the state directory is invalid.
    """
    declared = open_file(file, parameters, environment)
    tree: dict[str, Any] = declared.document.tree
    checkpoints = tree.get("checkpoints")
    own = checkpoints.get("path") if isinstance(checkpoints, dict) else None
    name = declared.substitution.substitute(tree.get("name"), ("name",))
    path = declared.substitution.substitute(own, ("checkpoints", "path"))
    if not isinstance(name, str) or not name:
        declared.problems.add(("name",), "is missing")
    if any("${" in str(each) for each in (tree.get("name"), own)) or not name:
        declared.refuse()
    return str(name), _state_of(declared.path, str(name), path)


def _state_of(file: Path, name: str, own: str | None) -> StateDirectory:
    return StateDirectory(file.parent / (own or f".danube/pipelines/{name}"))
