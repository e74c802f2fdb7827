"""The schema registry, as a client asks it: subjects, versions, and who uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.client.schema import Schema
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_subject
from pydanube.model.positions import parse_choice
from pydanube.model.schemas import Compatibility, SchemaPolicy, TopicSchema
from pydanube.schemas.compatibility import Direction, Violation
from pydanube.schemas.language import Incompatibility
from pydanube.wire.native.schema_messages import (
    schema_version_from_wire,
    subject_from_wire,
    topic_schema_from_wire,
    topic_schema_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.client.requester import Requester
    from pydanube.model.schemas import SchemaVersion, SubjectDescription


class Schemas:
    """
    The schema registry of a broker; ``Client.schemas``.

    A *schema* is a ``Schema``, or a class that one can be made of.
    """

    def __init__(self, client: Requester) -> None:
        self._client = client

    # Subjects and versions.

    async def register(
        self,
        subject: str,
        schema: Schema[Any] | type,
        *,
        description: str = "",
        created_by: str = "",
        tags: Iterable[str] = (),
    ) -> SchemaVersion:
        """
        Make *schema* the latest version of *subject*, which is created if needed.

        A schema that the subject has already is not registered twice: the version
        that it is comes back.

        Args:
            subject: What the versions are versions of, for example ``orders``.
            schema: What to register.
            description: For people; of this version.
            created_by: For people.
            tags: For people and their tools.

        Durability: On return it is in the metadata store.

        Raises:
            InvalidSchema: The definition is not well-formed.
            IncompatibleSchema: It does not go with the versions that are there.
        """
        version, _ = await self.submit(
            subject, schema, description=description, created_by=created_by, tags=tags
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
    ) -> tuple[SchemaVersion, bool]:
        """The same as ``register``, and whether the version is new."""
        new = _new_schema(Schema.of(schema))
        new.description, new.created_by = description, created_by
        new.tags.extend(tags)
        message = pb.RegisterSchema(subject=parse_subject(subject), schema=new)
        # Registering twice is the same as once.
        answer = await self._client.request(message)
        return schema_version_from_wire(answer.version), answer.is_new

    async def get(self, subject: str, version: int) -> SchemaVersion:
        """
        One version of *subject*.

        Raises:
            SchemaNotFound: There is no such subject or version.
        """
        _check_version(version)
        message = pb.GetSchema(subject=parse_subject(subject), version=version)
        return await self._get(message)

    async def latest(self, subject: str) -> SchemaVersion:
        """
        The latest version of *subject*.

        Raises:
            SchemaNotFound: There is no such subject, or all versions are deleted.
        """
        return await self._get(pb.GetSchema(subject=parse_subject(subject)))

    async def by_id(self, schema_id: int, version: int) -> SchemaVersion:
        """
        The version that messages with this schema id and version were written with.

        Raises:
            SchemaNotFound: There is none.
        """
        _check_version(version)
        if schema_id < 1:
            raise InvalidRequest("schema ids begin at 1")
        return await self._get(pb.GetSchema(schema_id=schema_id, version=version))

    async def versions(self, subject: str) -> list[SchemaVersion]:
        """
        All versions of *subject*, in order.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        versions: list[SchemaVersion] = []
        has_more = True
        while has_more:
            answer = await self._client.request(
                pb.ListSchemaVersions(
                    subject=parse_subject(subject),
                    after=versions[-1].version if versions else 0,
                )
            )
            versions += map(schema_version_from_wire, answer.versions)
            has_more = answer.has_more
        return versions

    async def subjects(self) -> list[str]:
        """The names of all subjects."""
        answer = await self._client.request(pb.ListSubjects())
        return list(answer.subjects)

    async def describe(self, subject: str) -> SubjectDescription:
        """
        What is known of *subject*: its type, its mode, which versions it has.

        Raises:
            SchemaNotFound: There is none.
        """
        message = pb.DescribeSubject(subject=parse_subject(subject))
        return subject_from_wire(await self._client.request(message))

    async def delete(
        self, subject: str, version: int | None = None, *, force: bool = False
    ) -> None:
        """
        Remove a version of *subject*, or None: the subject with all its versions.

        Neither the id nor the number is given out again.  Messages that were
        written with it stay, and have no values any more.

        Raises:
            SchemaNotFound: There is no such subject or version.
            SchemaInUse: A topic is bound to it, and *force* is false.
        """
        if version is not None:
            _check_version(version)
        await self._client.request(
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
        Why *schema* may not become a version of *subject*; empty if it may.

        Args:
            subject: One that exists.
            schema: The candidate.
            mode: Instead of the subject's own mode, for example ``"full"``.

        Raises:
            SchemaNotFound: There is no such subject.
            InvalidSchema: The definition is not well-formed.
        """
        answer = await self._client.request(
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
        What later versions of *subject* must be able to do.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        return (await self.describe(subject)).compatibility

    async def set_compatibility(self, subject: str, mode: str | Compatibility) -> None:
        """
        Decide what later versions of *subject* must be able to do.

        Versions that are there are not judged again.

        Args:
            subject: One that exists.
            mode: ``"none"``, ``"backward"``, ``"forward"`` or ``"full"``, of the
                latest version; the same with ``"_transitive"``, of all versions.

        Raises:
            SchemaNotFound: There is no such subject.
        """
        await self._client.request(
            pb.SetCompatibility(
                subject=parse_subject(subject), compatibility=_mode(mode).value
            )
        )

    # Topics.

    async def bind(
        self,
        topic: str,
        subject: str | None,
        *,
        policy: str | SchemaPolicy = SchemaPolicy.WARN,
        validates_payload: bool = False,
        version: int | None = None,
        version_min: int | None = None,
    ) -> None:
        """
        Decide which subject the messages of *topic* keep to; None: to none.

        It is for all partitions, and holds at once for producers that are there.

        Args:
            topic: ``/{namespace}/{topic}``.
            subject: One that exists.
            policy: What becomes of messages that do not: ``"enforce"`` refuses them,
                ``"warn"`` takes and counts them, ``"none"`` does not look.
            validates_payload: Look into every payload, not only at its schema id.
            version: Take only this version of the subject; None: any.
            version_min: Take no older version than this one; None: any.

        Raises:
            TopicNotFound: There is no such topic.
            SchemaNotFound: There is no such subject or version.
        """
        schema = None
        if subject is not None:
            schema = topic_schema_to_wire(
                TopicSchema(
                    subject=parse_subject(subject),
                    policy=parse_choice("policy", policy, SchemaPolicy)
                    if isinstance(policy, str)
                    else policy,
                    validates_payload=validates_payload,
                    version=version,
                    version_min=version_min,
                )
            )
        await self._client.request(
            pb.BindSchema(topic=str(TopicName.parse(topic)), schema=schema)
        )

    async def topic_schema(self, topic: str) -> TopicSchema | None:
        """
        What the messages of *topic* keep to; None if to nothing.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.GetTopicSchema(topic=str(TopicName.parse(topic)))
        answer = await self._client.request(message)
        if not answer.HasField("schema"):
            return None
        return topic_schema_from_wire(answer.schema)

    async def _get(self, message: pb.GetSchema) -> SchemaVersion:
        return schema_version_from_wire(await self._client.request(message))


def schema_of(version: SchemaVersion, cls: Any = None) -> Schema[Any]:
    """A registered version as a schema, whose values are of *cls*."""
    return Schema(version.type, version.definition, version.message, cls)


def subject_of(topic: str) -> str:
    """The subject of a topic whose producer names none: ``default-orders``."""
    return topic.removeprefix("/").replace("/", "-")


def _new_schema(schema: Schema[Any]) -> pb.NewSchema:
    return pb.NewSchema(
        type=schema.type.value,
        definition=schema.definition.encode(errors="surrogatepass"),
        message=schema.message or "",
    )


def _mode(mode: str | Compatibility) -> Compatibility:
    return mode if isinstance(mode, Compatibility) else Compatibility.parse(mode)


def _check_version(version: int) -> None:
    if version < 1:
        raise InvalidRequest("versions begin at 1")
