"""From a file to a pipeline whose every word is understood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pydanube.pipelines.parameters import Secrets, Substitution
from pydanube.pipelines.problems import InvalidPipeline, Problem, Problems
from pydanube.pipelines.reading import Document, read_document
from pydanube.pipelines.rules import Rules
from pydanube.pipelines.spec import Spec, Trigger, parse_spec, parse_trigger
from pydanube.reader.read_option_table import URL_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.pipelines.spec import Sink

BROKER_VARIABLE = "DANUBE_URL"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A file that was understood."""

    file: Path
    spec: Spec
    broker: str
    """Where topics are, if neither source nor sink says so."""
    secrets: Secrets
    document: Document
    trigger: Trigger

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def directory(self) -> Path:
        """Where relative paths begin."""
        return self.file.parent

    @property
    def state_directory(self) -> Path:
        """Where the run keeps what it needs to go on."""
        return _state_directory(self.file, self.name, self.spec.checkpoints.path)

    def trigger_of(self, sink: Sink) -> Trigger:
        """When *sink* gets its next rows."""
        return self.trigger if sink.trigger is None else parse_trigger(sink.trigger)

    def with_trigger(self, trigger: Trigger) -> Pipeline:
        """The same with *trigger* for all that have none of their own."""
        return replace(self, trigger=trigger)

    def on_spark(self, *, master: str | None, remote: str | None) -> Pipeline:
        """The same on another Spark than the file says."""
        words = structs.replace(self.spec.spark, master=master, remote=remote)
        return replace(self, spec=structs.replace(self.spec, spark=words))

    def problems(self) -> Problems:
        """A new list of problems with this file."""
        return Problems(self.document.line_of)

    def refuse(self, problems: Problems) -> None:
        """
        Go on only if there are no *problems*.

        Raises:
            InvalidPipeline: There are.
        """
        _refuse(self.file, problems, self.secrets)


def load(
    file: Path,
    *,
    parameters: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pipeline:
    """
    The pipeline in *file*, with *parameters* and the secrets of *environment*.

    Nothing is connected to, and no code of the user's is run.

    Raises:
        InvalidPipeline: Something is wrong with it; all that is, is named.
    """
    file = file.resolve()
    environment = environment or {}
    document = _read(file)
    problems = Problems(document.line_of)
    substitution = Substitution(document.tree, parameters or {}, environment, problems)
    tree = substitution.substitute(document.tree)
    spec = parse_spec(tree, problems)
    if spec is None:
        _refuse(file, problems, substitution.secrets)
    assert spec is not None
    broker = spec.broker or environment.get(BROKER_VARIABLE) or URL_DEFAULT
    Rules(spec, broker, file.parent, problems).check()
    _refuse(file, problems, substitution.secrets)
    trigger = parse_trigger(spec.trigger)
    return Pipeline(file, spec, broker, substitution.secrets, document, trigger)


def locate(
    file: Path, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, Path]:
    """
    The name and the state directory of the pipeline in *file*.

    The rest of the file may be wrong, and its secrets may be missing.

    Raises:
        InvalidPipeline: Even this much of it cannot be understood.
    """
    file = file.resolve()
    document = _read(file)
    problems = Problems(document.line_of)
    tree: dict[str, Any] = document.tree
    checkpoints = tree.get("checkpoints")
    own = checkpoints.get("path") if isinstance(checkpoints, dict) else None
    substitution = Substitution(tree, parameters, environment, problems)
    name = substitution.substitute(tree.get("name"), ("name",))
    path = substitution.substitute(own, ("checkpoints", "path"))
    if not isinstance(name, str) or not name:
        problems.add(("name",), "is missing")
    if any("${" in str(each) for each in (tree.get("name"), own)) or not name:
        _refuse(file, problems, substitution.secrets)
    return str(name), _state_directory(file, str(name), path)


def _read(file: Path) -> Document:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidPipeline(str(file), [Problem("", said)]) from error
    return read_document(text, str(file))


def _state_directory(file: Path, name: str, own: str | None) -> Path:
    if own is not None:
        return file.parent / own
    return file.parent / ".danube" / "pipelines" / name


def _refuse(file: Path, problems: Problems, secrets: Secrets) -> None:
    if not problems.found:
        return
    raise InvalidPipeline(
        str(file),
        [
            replace(each, message=secrets.redact(each.message))
            for each in problems.found
        ],
    )
