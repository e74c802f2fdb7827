"""Subjects, versions and the schemas of topics in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import Compatibility, SchemaType, TopicSchema
from pydanube.schemas.registry import NewSchema
from pydanube.servers.http.answers import (
    answering,
    body_of,
    created,
    done,
    topic_of,
)
from pydanube.servers.http.topics import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from pydanube.broker.broker import Broker
    from pydanube.schemas.registry import SchemaRegistry

SUBJECT = "/schemas/{subject}"
VERSION = f"{SUBJECT}/versions/{{version}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """What ``POST …/versions`` takes."""

    type: SchemaType
    definition: str = ""
    message: str | None = None
    description: str = ""
    created_by: str = ""
    tags: tuple[str, ...] = ()

    def schema(self) -> NewSchema:
        """What somebody wants to register."""
        return NewSchema(
            type=self.type,
            definition=self.definition,
            message=self.message,
            description=self.description,
            created_by=self.created_by,
            tags=self.tags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What ``POST …/check`` takes."""

    type: SchemaType
    definition: str = ""
    message: str | None = None
    compatibility: Compatibility | None = None

    def schema(self) -> NewSchema:
        """What somebody would like to register."""
        return NewSchema(
            type=self.type, definition=self.definition, message=self.message
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What ``PUT …/compatibility`` takes."""

    compatibility: Compatibility


class SchemaApi:
    """The endpoints; each says what it answers."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def routes(self) -> Iterator[Route]:
        """Where they are."""
        for path, method, call in (
            ("/schemas", "GET", self.list),
            (SUBJECT, "GET", self.describe),
            (SUBJECT, "DELETE", self.delete),
            (f"{SUBJECT}/versions", "GET", self.versions),
            (f"{SUBJECT}/versions", "POST", self.register),
            (VERSION, "GET", self.version),
            (VERSION, "DELETE", self.delete_version),
            (f"{SUBJECT}/check", "POST", self.check),
            (f"{SUBJECT}/compatibility", "PUT", self.set_compatibility),
            ("/schema-ids/{schema_id}", "GET", self.by_id),
            (f"{TOPIC}/schema", "GET", self.of_topic),
            (f"{TOPIC}/schema", "PUT", self.bind),
            (f"{TOPIC}/schema", "DELETE", self.unbind),
        ):
            yield Route(path, answering(call), methods=[method])

    @property
    def _registry(self) -> SchemaRegistry:
        return self._broker().registry

    # Subjects and versions.

    async def list(self, _: Request) -> object:
        """The names."""
        return {"subjects": await self._registry.subjects()}

    async def describe(self, request: Request) -> object:
        """A subject: its id, type, mode and versions."""
        return await self._registry.describe(_subject_of(request))

    async def delete(self, request: Request) -> object:
        """Nothing; ``?force=true`` if topics may keep to it."""
        await self._broker().schemas.delete_subject(
            _subject_of(request), force=_is_forced(request)
        )
        return done()

    async def versions(self, request: Request) -> object:
        """Every version that was not deleted, with its text."""
        versions = await self._registry.versions(_subject_of(request))
        return {"versions": versions}

    async def register(self, request: Request) -> object:
        """The new version, or with 200 the one that is the same schema."""
        body = await body_of(request, NewVersion)
        found, is_new = await self._registry.register(
            _subject_of(request), body.schema()
        )
        return created(found) if is_new else found

    async def version(self, request: Request) -> object:
        """One version by its number, or ``latest``."""
        subject, version = _subject_of(request), request.path_params["version"]
        if version == "latest":
            return await self._registry.latest(subject)
        return await self._registry.version(subject, _number("version", version))

    async def delete_version(self, request: Request) -> object:
        """Nothing; ``?force=true`` if topics may take only this one."""
        version = _number("version", request.path_params["version"])
        await self._broker().schemas.delete_version(
            _subject_of(request), version, force=_is_forced(request)
        )
        return done()

    async def check(self, request: Request) -> object:
        """Whether a schema may become the next version, and what speaks against it."""
        body = await body_of(request, Candidate)
        violations = await self._registry.check(
            _subject_of(request), body.schema(), body.compatibility
        )
        return {
            "is_compatible": not violations,
            "violations": [
                {
                    "version": each.version,
                    "direction": each.direction,
                    "path": each.incompatibility.path,
                    "rule": each.incompatibility.rule,
                    "text": each.incompatibility.text,
                }
                for each in violations
            ],
        }

    async def set_compatibility(self, request: Request) -> object:
        """The subject, with another mode for the versions to come."""
        body = await body_of(request, Mode)
        await self._registry.set_compatibility(_subject_of(request), body.compatibility)
        return await self._registry.describe(_subject_of(request))

    async def by_id(self, request: Request) -> object:
        """What messages with this id are, by default of the latest ``?version=``."""
        schema_id = _number("schema id", request.path_params["schema_id"])
        version = request.query_params.get("version")
        return await self._registry.by_id(
            schema_id, None if version is None else _number("version", version)
        )

    # Schemas of topics.

    async def of_topic(self, request: Request) -> object:
        """What the messages of a topic keep to, null for nothing."""
        return {"schema": await self._broker().schemas.get(topic_of(request))}

    async def bind(self, request: Request) -> object:
        """The same; from now on the topic keeps to it."""
        name = topic_of(request)
        schema = await body_of(request, TopicSchema)
        await self._broker().schemas.bind(name, schema)
        return {"schema": schema}

    async def unbind(self, request: Request) -> object:
        """Nothing; and the topic takes whatever comes."""
        await self._broker().schemas.bind(topic_of(request), None)
        return done()


def _subject_of(request: Request) -> str:
    return str(request.path_params["subject"])


def _is_forced(request: Request) -> bool:
    return request.query_params.get("force") == "true"


def _number(what: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidRequest(f"{text!r} is no {what}: it must be a number")
    return int(text)
