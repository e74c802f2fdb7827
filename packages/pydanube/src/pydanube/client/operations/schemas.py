"""The operations of a client on the schema registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydanube.client.connections.requester import Requester
from pydanube.client.messages.schema import Schema
from pydanube.model.arguments import checks_arguments
from pydanube.model.errors import InvalidRequest, InvalidSchema
from pydanube.model.names import parse_subject
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaVersion,
    SubjectDescription,
    TopicSchema,
)
from pydanube.schemas.compatibility import Direction, Violation
from pydanube.schemas.language import Incompatibility
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class Schemas:
    """
    The schema registry of a broker; ``Client.schemas``.

    A *schema* is a ``Schema``, or a class to derive it from.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    # Subjects and versions.

    async def register(
        self,
        subject: str,
        schema: Schema[Any] | type,
        *,
        description: str = "",
        created_by: str = "",
        tags: Iterable[str] = (),
        references: Iterable[ReferencedVersion] = (),
    ) -> SchemaVersion:
        """
        Register *schema* as the latest version of *subject*; create it if necessary.

        Registering a schema that the subject already has returns its version.

        Args:
            subject: The name of the versions, for example ``orders``.
            schema: The schema to register.
            description: A text about this version.
            created_by: The author of this version.
            tags: Labels of this version.
            references: Up to 45 versions that cannot be deleted before this one. A
                version that exists gets those that it lacks. They need the permission
                ``schema_read``.

        Durability: On return the version is in the metadata store.

        Raises:
            InvalidSchema: The definition is not well-formed.
            IncompatibleSchema: It is not compatible with the existing versions.
            SchemaNotFound: There is no such version among *references*.
        """
        version, _ = await self.submit(
            subject,
            schema,
            description=description,
            created_by=created_by,
            tags=tags,
            references=references,
        )
        return version

    async def submit(
        self,
        subject: str,
        schema: Schema[Any] | type,
        *,
        description: str = "",
        created_by: str = "",
        tags: Iterable[str] = (),
        references: Iterable[ReferencedVersion] = (),
    ) -> tuple[SchemaVersion, bool]:
        """Register *schema*, and also return whether the version is new."""
        new = _new_schema(Schema.of(schema))
        new.description, new.created_by = description, created_by
        new.tags.extend(tags)
        message = pb.RegisterSchema(
            subject=parse_subject(subject),
            schema=new,
            references=[to_wire(pb.ReferencedVersion, each) for each in references],
        )
        answer = await self._requester.send_request(message)
        return from_wire(SchemaVersion, answer.version), answer.is_new

    async def get(self, subject: str, version: int) -> SchemaVersion:
        """
        Return one version of *subject*.

        Raises:
            SchemaNotFound: There is no such subject or version.
        """
        _check_version(version)
        message = pb.GetSchema(subject=parse_subject(subject), version=version)
        return await self._get(message)

    async def latest(self, subject: str) -> SchemaVersion:
        """
        Return the latest version of *subject*.

        Raises:
            SchemaNotFound: There is no such subject, or all versions are deleted.
        """
        return await self._get(pb.GetSchema(subject=parse_subject(subject)))

    async def by_id(self, schema_id: int, version: int) -> SchemaVersion:
        """
        Return the version with this schema id and version number.

        Raises:
            SchemaNotFound: There is no such version.
        """
        _check_version(version)
        if schema_id < 1:
            raise InvalidRequest(f"schema_id is {schema_id}: it must be at least 1")
        return await self._get(pb.GetSchema(schema_id=schema_id, version=version))

    async def versions(self, subject: str) -> list[SchemaVersion]:
        """
        Return all versions of *subject*, in order.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        versions: list[SchemaVersion] = []
        has_more = True
        while has_more:
            answer = await self._requester.send_request(
                pb.ListSchemaVersions(
                    subject=parse_subject(subject),
                    after=versions[-1].version if versions else 0,
                )
            )
            versions += [from_wire(SchemaVersion, each) for each in answer.versions]
            has_more = answer.has_more
        return versions

    async def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        answer = await self._requester.send_request(pb.ListSubjects())
        return list(answer.subjects)

    async def describe(self, subject: str) -> SubjectDescription:
        """
        Describe *subject*: its type, its compatibility and its versions.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        message = pb.DescribeSubject(subject=parse_subject(subject))
        return from_wire(
            SubjectDescription, await self._requester.send_request(message)
        )

    async def delete(
        self, subject: str, version: int | None = None, *, force: bool = False
    ) -> None:
        """
        Delete a version of *subject*; None: the subject with all its versions.

        The broker does not assign the id or the number again.  Messages that were
        written with the version stay, but their values cannot be decoded.

        Raises:
            SchemaNotFound: There is no such subject or version.
            SchemaInUse: A topic is bound to it, and *force* is false.
        """
        if version is not None:
            _check_version(version)
        await self._requester.send_request(
            pb.DeleteSchema(
                subject=parse_subject(subject), version=version or 0, force=force
            ),
        )

    # Compatibility.

    async def check(
        self,
        subject: str,
        schema: Schema[Any] | type,
        *,
        mode: str | Compatibility | None = None,
    ) -> list[Violation]:
        """
        Return why *schema* is not compatible with *subject*; empty if it is.

        Args:
            subject: An existing subject.
            schema: The schema to check.
            mode: The compatibility to check, for example ``"full"``; None: the
                subject's own.

        Raises:
            SchemaNotFound: There is no such subject.
            InvalidSchema: The definition is not well-formed.
        """
        answer = await self._requester.send_request(
            pb.CheckSchema(
                subject=parse_subject(subject),
                schema=_new_schema(Schema.of(schema)),
                compatibility="" if mode is None else _mode(mode).value,
            )
        )
        return [
            Violation(
                version=each.version,
                direction=Direction(each.direction),
                incompatibility=Incompatibility(
                    path=each.path, rule=each.rule, text=each.text
                ),
            )
            for each in answer.violations
        ]

    async def compatibility(self, subject: str) -> Compatibility:
        """
        Return the compatibility that new versions of *subject* must have.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        return (await self.describe(subject)).compatibility

    async def set_compatibility(self, subject: str, mode: str | Compatibility) -> None:
        """
        Set the compatibility that new versions of *subject* must have.

        Existing versions are not checked.

        Args:
            subject: An existing subject.
            mode: ``"none"``, ``"backward"``, ``"forward"`` or ``"full"``, with the
                latest version; with the suffix ``"_transitive"``, with all versions.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        await self._requester.send_request(
            pb.SetCompatibility(
                subject=parse_subject(subject), compatibility=_mode(mode).value
            )
        )

    # Topics.

    async def topic_schema(self, topic: str) -> TopicSchema | None:
        """
        Return the subject that *topic* is bound to, or None.

        Raises:
            TopicNotFound: There is no such topic.
        """
        answer = await self._requester.request_topic(topic, pb.GetTopicSchema())
        if not answer.HasField("schema"):
            return None
        return from_wire(TopicSchema, answer.schema)

    async def _get(self, message: pb.GetSchema) -> SchemaVersion:
        return from_wire(SchemaVersion, await self._requester.send_request(message))


def subject_of(topic: str) -> str:
    """Return the default subject of a topic, such as ``default-orders``."""
    return topic.removeprefix("/").replace("/", "-")


def _new_schema(schema: Schema[Any]) -> pb.NewSchema:
    try:
        schema.definition.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"the schema is not UTF-8 text: {error}") from error
    return pb.NewSchema(
        type=schema.type.value,
        definition=schema.definition,
        message=schema.message or "",
    )


def _mode(mode: str | Compatibility) -> Compatibility:
    return mode if isinstance(mode, Compatibility) else Compatibility.parse(mode)


def _check_version(version: int) -> None:
    if version < 1:
        raise InvalidRequest(f"version is {version}: it must be at least 1")
