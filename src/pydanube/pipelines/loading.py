"""The parsing of pipeline files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydanube.pipelines.parameters import Substitution
from pydanube.pipelines.problems import InvalidPipeline, Problem, Problems
from pydanube.pipelines.reading import Document, read_document
from pydanube.pipelines.rules import Rules
from pydanube.pipelines.secret_files import secret_files_of
from pydanube.pipelines.spec import Sink, Spec, Trigger, parse_spec, parse_trigger
from pydanube.pipelines.state import StateDirectory
from pydanube.reader.read_options import URL_DEFAULT

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

    def trigger_of(self, sink: Sink) -> Trigger:
        """Return the trigger of *sink*."""
        return self.trigger if sink.trigger is None else parse_trigger(sink.trigger)


def load(
    file: Path,
    *,
    parameters: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pipeline:
    """
    Parse and check *file* with *parameters* and the secrets of *environment*.

    This neither connects to servers nor runs user code.

    Raises:
        InvalidPipeline: The file is invalid; the error has all problems.
    """
    file = file.resolve()
    environment = environment or {}
    document = _read(file)
    problems = Problems(document.line_of)
    substitution = Substitution(
        document.tree,
        parameters or {},
        environment,
        problems,
        secret_files_of(environment),
    )
    tree = substitution.substitute(document.tree)
    spec = parse_spec(tree, problems)
    if spec is None:
        problems.refuse(file, substitution.redact)
    assert spec is not None
    broker = spec.broker or environment.get(BROKER_VARIABLE) or URL_DEFAULT
    Rules(spec, broker, file.parent, problems).check()
    problems.refuse(file, substitution.redact)
    trigger = parse_trigger(spec.trigger)
    return Pipeline(file, spec, broker, substitution.redact, document, trigger)


def locate(
    file: Path, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, StateDirectory]:
    """
    Return the name and the state directory of the pipeline in *file*.

    The rest of the file may be invalid, and secrets may be missing.

    Raises:
        InvalidPipeline: The name or the state directory is invalid.
    """
    file = file.resolve()
    document = _read(file)
    problems = Problems(document.line_of)
    tree: dict[str, Any] = document.tree
    checkpoints = tree.get("checkpoints")
    own = checkpoints.get("path") if isinstance(checkpoints, dict) else None
    substitution = Substitution(
        tree, parameters, environment, problems, secret_files_of(environment)
    )
    name = substitution.substitute(tree.get("name"), ("name",))
    path = substitution.substitute(own, ("checkpoints", "path"))
    if not isinstance(name, str) or not name:
        problems.add(("name",), "is missing")
    if any("${" in str(each) for each in (tree.get("name"), own)) or not name:
        problems.refuse(file, substitution.redact)
    return str(name), _state_of(file, str(name), path)


def _read(file: Path) -> Document:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidPipeline(str(file), [Problem("", message)]) from error
    return read_document(text, str(file))


def _state_of(file: Path, name: str, own: str | None) -> StateDirectory:
    return StateDirectory(file.parent / (own or f".danube/pipelines/{name}"))
