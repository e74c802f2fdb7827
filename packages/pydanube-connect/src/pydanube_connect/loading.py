"""The loading of files that declare connectors, with all checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydanube.client.client import DEFAULT_URL, URL_VARIABLE
from pydanube.declarations.functions import NoSuchFunction, check_function
from pydanube.declarations.loading import DeclaredFile, open_file
from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.problems import Problems
from pydanube.declarations.pure.reading import Document
from pydanube.declarations.pure.sections import Section, parse_duration, parse_section
from pydanube.model.errors import BrokerError, InvalidConfig
from pydanube.model.extras import MissingExtra, require
from pydanube.model.field_paths import parse_path
from pydanube.model.names import TopicName
from pydanube.model.policy import SubscriptionType
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube.model.schemas import SchemaType
from pydanube.model.stored_connectors import POSITIONS_SUFFIX
from pydanube_connect.connector import Connector, Sink, Source
from pydanube_connect.kinds import find_kind
from pydanube_connect.pure.spec import ConnectFile, ConnectorSpec
from pydanube_connect.pure.transforms import STEPS_MAX, Transform, parse_step
from pydanube_connect.sinks.spark import SparkSink

_OF_SINKS = ("subscription", "type", "start")
_IN_ORDER = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
_NOT_OF_SPARK = ("subscription", "type", "batch")
_OF_SOURCES = ("partitions", "deduplicate", "transform", "mapping", "schema")


Permit = Callable[[str], Awaitable[None]]
"""Raises PermissionDenied if a connector may not publish to a topic; often called."""


@dataclass(frozen=True, slots=True)
class DeclaredConnector:
    """A connector of a file that is valid."""

    name: str
    file: Path
    kind: type[Connector]
    spec: ConnectorSpec
    options: Section
    broker: str
    redact: Callable[[str], str]
    """Replaces secrets in a text."""
    transform: Transform
    """The steps before the mapping of a source."""
    document: Document
    """The file, for the lines of problems."""
    permit: Permit | None = None
    """Decides about topics that messages choose; None: the broker alone decides."""

    def make(self) -> Connector:
        """Return the connector, which is not open yet."""
        connector = self.kind(self.options)
        connector.directory = self.file.parent
        return connector

    @property
    def is_source(self) -> bool:
        return issubclass(self.kind, Source)

    @property
    def positions_topic(self) -> str:
        """Return the topic of the connector's positions, in its topic's namespace."""
        namespace = TopicName.parse(self.spec.topic).namespace
        return f"/{namespace}/{self.name}{POSITIONS_SUFFIX}"


def load(
    file: Path,
    *,
    parameters: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[DeclaredConnector]:
    """
    Parse and check *file* with *parameters* and the secrets of *environment*.

    It imports the classes of users that the file names, and connects to no server.

    Raises:
        InvalidDeclaration: The file is invalid; the error has all problems.
    """
    environment = environment or {}
    declared = open_file(file, parameters or {}, environment)
    tree = declared.substitution.substitute(declared.document.tree)
    default = environment.get(URL_VARIABLE) or DEFAULT_URL
    found = connectors_of(declared, tree, default)
    declared.refuse()
    return found


def connectors_of(
    declared: DeclaredFile, tree: dict[str, Any], default_broker: str
) -> list[DeclaredConnector]:
    """
    Return the valid connectors in *tree*, the content of a file after substitution.

    The problems of the others are added to those of *declared*.
    """
    file, problems = declared.path, declared.problems
    parsed = parse_section(tree, ConnectFile, (), problems)
    if parsed is None:
        return []
    if not parsed.connectors:
        problems.add(("connectors",), "declares no connectors")
    found = []
    for name, each in parsed.connectors.items():
        checks = _Checks(name, each, file.parent, problems)
        kind, options = checks.run()
        transform = checks.transform()
        if kind is not None and options is not None:
            found.append(
                DeclaredConnector(
                    name,
                    file,
                    kind,
                    each,
                    options,
                    each.broker or parsed.broker or default_broker,
                    declared.substitution.redact,
                    transform,
                    declared.document,
                )
            )
    return found


class _Checks:
    """The checks of one connector."""

    def __init__(
        self, name: str, spec: ConnectorSpec, directory: Path, problems: Problems
    ) -> None:
        self._name = name
        self._spec = spec
        self._directory = directory
        self._problems = problems

    def run(self) -> tuple[type[Connector] | None, Section | None]:
        """Return the class and its options, or None if they have problems."""
        spec = self._spec
        self._catch((), TopicName.parse, f"/default/{self._name}")
        self._catch(("topic",), TopicName.parse, spec.topic)
        if spec.dead_letters is not None:
            self._catch(("dead_letters",), TopicName.parse, spec.dead_letters)
        for name in ("backoff", "backoff_max"):
            text = getattr(spec.retries, name)
            self._catch(("retries", name), parse_duration, text)
        self._catch(("unhealthy_after",), parse_duration, spec.unhealthy_after)
        self._check_batch()
        kind = self._kind()
        if kind is None:
            return None, None
        if issubclass(kind, Source):
            self._check_source()
        else:
            self._refuse_given(_OF_SOURCES, "only a source has it")
        if issubclass(kind, SparkSink):
            self._refuse_given(_NOT_OF_SPARK, "Spark reads the topic in its own way")
        path = self._path("options")
        options = parse_section(spec.options, kind.Options, path, self._problems)
        if options is not None:
            if (
                issubclass(kind, Sink)
                and spec.type not in _IN_ORDER
                and kind.needs_order_with(options)
            ):
                self._add(("type",), "must be failover or exclusive, for the order")
            for name, problem in kind.problems(options).items():
                self._problems.add((*path, name), problem)
            for name, function in kind.functions(options).items():
                self._catch(
                    ("options", name), check_function, function, self._directory
                )
        return kind, options

    def transform(self) -> Transform:
        """Return the transform, without steps that have problems."""
        declared = self._spec.transform
        if len(declared) > STEPS_MAX:
            self._add(("transform",), f"has more than {STEPS_MAX} steps")
            return Transform()
        steps = []
        for number, each in enumerate(declared):
            try:
                steps.append(parse_step(each, self._directory))
            except (InvalidConfig, NoSuchFunction, MissingExtra) as error:
                self._add(("transform", number), str(error))
        return Transform(steps)

    def _kind(self) -> type[Connector] | None:
        name = self._spec.kind
        try:
            kind = find_kind(name, self._directory)
            if kind.extra is not None:
                require(kind.extra, f"the kind {name}")
        except (InvalidConfig, NoSuchFunction, MissingExtra) as error:
            self._add(("kind",), str(error))
            return None
        return kind

    def _check_batch(self) -> None:
        batch = self._spec.batch
        if batch.messages is not None and batch.messages < 1:
            self._add(("batch", "messages"), "must be at least 1")
        if not parse_quantity(batch.bytes, BYTE_UNITS):
            self._add(("batch", "bytes"), f"{batch.bytes!r} is not a size such as 1MiB")
        if batch.wait is not None:
            self._catch(("batch", "wait"), parse_duration, batch.wait)

    def _check_source(self) -> None:
        spec = self._spec
        self._refuse_given(_OF_SINKS, "only a sink has it")
        if spec.deduplicate is not None:
            self._catch(("deduplicate",), parse_duration, spec.deduplicate)
        mapping = spec.mapping
        if mapping.id is not None and spec.deduplicate is None:
            self._add(
                ("mapping", "id"), "needs 'deduplicate', such as 'deduplicate: 1h'"
            )
        paths = {name: getattr(mapping, name) for name in ("key", "id", "payload")}
        for name, text in paths.items():
            if text is not None:
                self._catch(("mapping", name), parse_path, text)
        for name, text in mapping.attributes.items():
            self._catch(("mapping", "attributes", name), parse_path, text)
        schema = spec.schema
        if schema is None:
            return
        if (schema.type is None) is not (schema.file is None):
            self._add(("schema",), "'type' and 'file' belong together")
        elif schema.type is not None and schema.file is not None:
            self._catch(("schema", "type"), SchemaType.parse, schema.type)
            if not (self._directory / schema.file).is_file():
                self._add(
                    ("schema", "file"),
                    f"there is no file {self._directory / schema.file}",
                )

    def _refuse_given(self, names: tuple[str, ...], reason: str) -> None:
        given: Any = self._spec
        defaults = type(self._spec)(kind="", topic="")
        for name in names:
            if getattr(given, name) != getattr(defaults, name):
                self._add((name,), reason)

    def _catch(
        self, path: SpecPath, check: Callable[..., object], *arguments: object
    ) -> None:
        try:
            check(*arguments)
        except (BrokerError, ValueError) as error:
            self._add(path, str(error))

    def _add(self, path: SpecPath, message: str) -> None:
        self._problems.add(self._path(*path), message)

    def _path(self, *path: str | int) -> SpecPath:
        return ("connectors", self._name, *path)
