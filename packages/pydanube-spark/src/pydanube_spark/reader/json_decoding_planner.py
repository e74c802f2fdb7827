"""The plan of a query whose values become JSON: the schemas of all its topics."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pydanube.client.messages.schema import Schema, schema_of
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import WriterSchema
from pydanube_spark.reader.decoding_planner import DecodingPlanner, unbound_topics
from pydanube_spark.reader.json_decoding import AS_JSON, JsonDecoding
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import ValueOptions


class JsonDecodingPlanner(DecodingPlanner):
    """Plans how one query decodes values to JSON; can be pickled."""

    def __init__(
        self, options: ValueOptions, catalog: Catalog, value_type: Any = None
    ) -> None:
        """
        Prepare to plan.

        Raises:
            InvalidRequest: The column ``value`` is not of the type *value_type*, text.
        """
        super().__init__(options, catalog, value_type, AS_JSON)
        if value_type is not None and value_type != pa.string():
            raise InvalidRequest("with decode=json the column value is a string")
        self._subjects: dict[str, str] = {}
        self._known: dict[WriterSchema, Schema[Any]] = {}

    def plan(self, topics: Iterable[str]) -> ReaderSchema:
        """
        Check the topics of a query that starts now.

        Raises:
            InvalidRequest: A topic is not bound to a subject.
        """
        self._subjects_of(topics)
        return AS_JSON

    def column_type(self, reader_schema: ReaderSchema) -> Any:
        return pa.string()

    def decoding(  # type: ignore[override]
        self,
        topics: Iterable[str],
        reader_schema: ReaderSchema,
    ) -> JsonDecoding:
        """
        Return what tasks need to decode the messages of *topics*.

        Raises:
            InvalidRequest: A topic is not bound to a subject.
        """
        found = {}
        for name in sorted(self._subjects_of(topics)):
            subject = self._catalog.subject(name)
            for version in subject.versions:
                key = subject.schema_id, version
                found[key] = self._known.get(key) or schema_of(
                    self._catalog.schema_version(name, version)
                )
        self._known = found
        return JsonDecoding(
            definitions=found, on_undecodable=self._options.on_undecodable
        )

    def _subjects_of(self, topics: Iterable[str]) -> set[str]:
        """Return the subjects of *topics*; a topic stays bound to its subject."""
        unbound = []
        topics = set(topics)
        for topic in sorted(topics - self._subjects.keys()):
            # A deleted topic is reported when its offsets are planned.
            with suppress(TopicNotFound):
                subject = self._catalog.subject_of(topic)
                if subject is None:
                    unbound.append(topic)
                else:
                    self._subjects[topic] = subject
        if unbound:
            raise unbound_topics(unbound)
        return {self._subjects[topic] for topic in topics & self._subjects.keys()}


def planner_for(
    options: ValueOptions,
    catalog: Catalog,
    value_type: Any = None,
    planned: ReaderSchema | None = None,
) -> DecodingPlanner:
    """Return the planner for *options*."""
    if options.as_json:
        return JsonDecodingPlanner(options, catalog, value_type)
    return DecodingPlanner(options, catalog, value_type, planned)
