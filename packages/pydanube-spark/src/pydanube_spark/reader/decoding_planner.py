"""
The choice of a query's reader schema, and the columns that its values become.

All topics of a query are bound to one subject.  The version is chosen when the query is
planned, and Spark keeps it in the metadata of the column ``value``.  A stream keeps the
version in its checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydanube.client.messages.schema import Schema, schema_of
from pydanube.model.errors import (
    InvalidConfig,
    InvalidRequest,
    SchemaNotFound,
    TopicNotFound,
)
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import (
    ERROR,
    VALUE,
    Decoding,
    ValueDecoder,
    parse_once,
)
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import OnUndecodable, ValueOptions
from pydanube_spark.reader.pure.spark_types import spark_type

log = logging.getLogger(__name__)

METADATA = "danube"
"""The name of the reader schema in the metadata of the column ``value``."""


class DecodingPlanner:
    """Plans how one query decodes values; has no connection, so it can be pickled."""

    def __init__(
        self,
        options: ValueOptions,
        catalog: Catalog,
        value_type: Any = None,
        planned: ReaderSchema | None = None,
    ) -> None:
        self._options = options
        self._catalog = catalog
        self._type = value_type
        """The type of Spark's column; None: the type of the values."""
        self._planned = planned
        self._bound: set[str] = set()
        """Topics that are known to be bound to the subject."""
        self._definitions: dict[int, Schema[Any]] = {}
        self._logged: set[ReaderSchema] = set()

    def plan(self, topics: Iterable[str]) -> ReaderSchema:
        """
        Return the reader schema for a query of *topics* that starts now.

        Raises:
            InvalidRequest: A topic is not bound to a subject, or the topics are bound
                to different subjects.
            SchemaNotFound: The subject does not have the version in ``schemaVersion``.
        """
        subject = self._subject_of(topics)
        if self._planned is None:
            found = self._catalog.subject(subject)
            wanted = self._options.version
            if wanted is None:
                wanted = max(found.versions, default=0)
            if wanted not in found.versions:
                raise SchemaNotFound(
                    f"{subject} has no version {wanted or ''}; it has "
                    f"{', '.join(map(str, found.versions)) or 'none'}"
                )
            self._planned = ReaderSchema(
                subject=subject, schema_id=found.schema_id, version=wanted
            )
        return self._planned

    def column_type(self, reader_schema: ReaderSchema) -> Any:
        """Return the Arrow type of Spark's column for values of *reader_schema*."""
        self._load_definitions(reader_schema)
        schema = parse_once(self._definitions[reader_schema.version])
        return spark_type(schema.arrow_type())

    def resume(
        self, topics: Iterable[str], recorded: ReaderSchema | None
    ) -> ReaderSchema:
        """
        Return the reader schema for a stream whose checkpoint has *recorded*.

        Raises:
            InvalidConfig: The checkpoint has another subject.
            InvalidRequest, SchemaNotFound: As for ``plan``.
        """
        planned = self.plan(topics)
        if recorded is None or recorded == planned:
            return planned
        if recorded.schema_id != planned.schema_id:
            raise InvalidConfig(
                f"the checkpoint has the subject {recorded.subject} (id "
                f"{recorded.schema_id}), but the topics are bound to {planned.subject} "
                f"(id {planned.schema_id}) now: start with a new checkpoint"
            )
        if self._options.is_version_given or self._options.fails_on_new:
            return planned
        if recorded not in self._logged:
            self._logged.add(recorded)
            log.warning(
                "continuing with %s from the checkpoint; the columns are those of "
                "version %d: set schemaVersion to choose a version",
                recorded,
                planned.version,
            )
        return recorded

    def repeat(
        self, topics: Iterable[str], recorded: ReaderSchema | None
    ) -> ReaderSchema:
        """
        Return the reader schema for a micro-batch whose end has *recorded*.

        It may be repeated, and has the same values then.  But a query that ended at a
        new version repeats the micro-batch with the new columns, and if the version
        was deleted since, ``schemaVersion`` takes its place.

        Raises:
            InvalidRequest, SchemaNotFound: As for ``plan``.
        """
        if recorded is None or self._options.fails_on_new:
            return self.plan(topics)
        if self._options.is_version_given:
            planned = self.plan(topics)
            is_other = recorded.version != planned.version
            # Each micro-batch comes here: the broker is asked only if it must be.
            if is_other and recorded.schema_id == planned.schema_id:
                versions = self._catalog.subject(planned.subject).versions
                return recorded if recorded.version in versions else planned
        return recorded

    def decoding(self, topics: Iterable[str], reader_schema: ReaderSchema) -> Decoding:
        """
        Return what tasks need to decode the messages of *topics*.

        Raises:
            InvalidRequest: A topic is not bound to the subject, or the values do not
                fit the columns of the plan.
            SchemaNotFound: The version is deleted.
        """
        planned = self.plan(topics)
        self._load_definitions(reader_schema)
        decoding = Decoding(
            reader_schema=reader_schema,
            definitions=self._definitions,
            on_undecodable=self._options.on_undecodable,
            fails_on_new=self._options.fails_on_new,
            allows_missing=reader_schema != planned,
        )
        try:
            ValueDecoder(decoding, self._type)
        except InvalidRequest as error:
            if reader_schema == planned:
                raise
            raise InvalidRequest(
                f"the checkpoint has {reader_schema}, which does not fit the "
                f"columns of the query, those of version {planned.version}: {error}. "
                "Set schemaVersion to choose a version."
            ) from error
        return decoding

    def _load_definitions(self, reader_schema: ReaderSchema) -> None:
        """Load the definitions of all versions of the subject."""
        found = self._catalog.subject(reader_schema.subject)
        if found.schema_id != reader_schema.schema_id or (
            reader_schema.version not in found.versions
        ):
            raise SchemaNotFound(
                f"{reader_schema} is deleted; set schemaVersion to go on"
            )
        self._definitions = {
            version: self._definitions.get(version)
            or schema_of(self._catalog.schema_version(found.subject, version))
            for version in found.versions
        }

    def _subject_of(self, topics: Iterable[str]) -> str:
        subject = None if self._planned is None else self._planned.subject
        by_topic: dict[str, str | None] = {}
        for topic in sorted(topics):
            if topic not in self._bound:
                # A deleted topic is reported when its offsets are planned.
                with suppress(TopicNotFound):
                    by_topic[topic] = self._catalog.subject_of(topic)
        if not by_topic and subject is None:
            raise InvalidRequest(
                "decode: there is no topic yet, so the subject of the values is unknown"
            )
        unbound = [topic for topic, bound in by_topic.items() if bound is None]
        if unbound:
            raise unbound_topics(unbound)
        names = {bound for bound in by_topic.values() if bound is not None}
        if subject is not None:
            names.add(subject)
        if len(names) > 1:
            found = ", ".join(f"{topic} to {name}" for topic, name in by_topic.items())
            raise InvalidRequest(
                f"decode: the topics are bound to different subjects ({found}); read "
                "them one by one, or as JSON with decode=json"
            )
        self._bound.update(by_topic)
        return names.pop()


def unbound_topics(topics: Sequence[str]) -> InvalidRequest:
    """Return the error for *topics* that are not bound to a subject."""
    return InvalidRequest(
        f"decode: not bound to a schema subject: {', '.join(topics)}. Bind it with "
        f"client.topics.configure({topics[0]!r}, schema=TopicSchema(subject=…)), or "
        "open a producer that has a schema"
    )


def check_columns(names: Iterable[str], options: ValueOptions | None) -> None:
    """
    Raise if *names* has a column of values that *options* do not enable.

    Raises:
        InvalidConfig: A column needs another option.
    """
    names = set(names)
    if VALUE in names and options is None:
        raise InvalidConfig("the column value needs decode=true")
    has_errors = options is not None and options.on_undecodable is OnUndecodable.NULL
    if ERROR in names and not has_errors:
        raise InvalidConfig(
            "the column _error needs decode=true and onUndecodable=null"
        )


def to_metadata(reader_schema: ReaderSchema) -> dict[str, Any]:
    """Return the column metadata that holds *reader_schema*."""
    return {METADATA: asdict(reader_schema)}


def from_metadata(metadata: Mapping[str, Any]) -> ReaderSchema | None:
    """Return the reader schema in *metadata*, or None if the user made the column."""
    found = metadata.get(METADATA)
    return None if found is None else ReaderSchema(**found)
