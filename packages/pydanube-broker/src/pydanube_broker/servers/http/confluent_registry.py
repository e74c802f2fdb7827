"""
The REST interface of Confluent's schema registry, over our registry.

Serializers of Kafka's clients and ``AvroConverter`` of Kafka Connect register and read
schemas with it.  Paths, answers and codes of errors are those of its API reference;
``docs/format/schema-registry.md`` says what differs.  Each request is carried out by
operations of the native protocol, so it needs their permissions.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    IncompatibleSchema,
    InvalidName,
    InvalidRequest,
    InvalidSchema,
    PermissionDenied,
    SchemaNotFound,
    Unauthenticated,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import Compatibility, ReferencedVersion, SchemaType
from pydanube.schemas.pure.confluent_schemas import (
    NAMES,
    TYPES,
    id_of,
    parts_of,
    proto_references,
    shown_name,
    stored_name,
    with_json_references,
    with_proto_references,
    with_references,
)
from pydanube.schemas.pure.proto_files import ProtoFile, names_of
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.schema_registry import REFERENCES_MAX
from pydanube_broker.operations import handlers as operations
from pydanube_broker.operations.authorization import visible_subjects
from pydanube_broker.operations.schemas import new_schema, schema_checked
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.errors import as_broker_error, http_status_of
from pydanube_broker.servers.http.endpoints import principal_of
from pydanube_broker.servers.http.operations import (
    BODY_BYTES_MAX,
    body_of,
    carry_out,
)
from pydanube_broker.servers.http.responses import JSON

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES = frozenset({JSON, MEDIA_TYPE, "application/vnd.schemaregistry+json"})
"""The content types of requests; a page of another origin cannot send them."""
LATEST = "latest"
DEFAULT_LEVEL = Compatibility.BACKWARD

_CONTEXT = ":."
"""The beginning of subjects in contexts; their own registry may divide subjects so."""
_SUBJECT = "/subjects/{subject}"
_VERSION = f"{_SUBJECT}/versions/{{version}}"
_CHECK = f"/compatibility{_SUBJECT}/versions"
PATHS = ("/subjects", "/schemas", "/compatibility", "/config", "/mode", "/contexts")
"""The beginnings of the paths of the interface."""


class Reference(msgspec.Struct):
    """A schema that another one uses by name."""

    name: str
    subject: str
    version: int = -1


class SchemaBody(msgspec.Struct, rename="camel"):
    """A schema in the body of a request."""

    schema: str
    schema_type: str = "AVRO"
    references: list[Reference] = msgspec.field(default_factory=list)


class LevelBody(msgspec.Struct):
    """A compatibility mode in the body of a request."""

    compatibility: str


class RegistryError(Exception):
    """An answer with a code of the interface."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class RegistryCall:
    """A request to the interface."""

    request: Request
    broker: Broker
    authenticator: Authenticator

    async def do(
        self, kind: Kind, message: Message, handler: operations.Handler | None = None
    ) -> Any:
        """Carry out an operation, or *handler* in its place, if the client may."""
        call = operations.Call(
            self.broker, principal_of(self.request), self.authenticator
        )
        return await carry_out(
            self.request, call, kind, handler or operations.handlers()[kind], message
        )

    @property
    def subject(self) -> str:
        """The subject in the path."""
        subject = str(self.request.path_params["subject"])
        if subject.startswith(_CONTEXT):
            raise RegistryError(
                422,
                42208,
                f"The subject '{subject[:50]}' has a context, and this registry has "
                "none: permissions and namespaces separate tenants.",
            )
        return subject

    def flag(self, name: str) -> bool:
        """Return whether the query has *name* with the value true."""
        return self.request.query_params.get(name, "").lower() == "true"

    async def body(self, kind: Any) -> Any:
        """
        Return the body as *kind*.

        Raises:
            InvalidRequest: It is not JSON, or a field is missing or of a wrong type.
            MessageTooLarge: It is too long.
        """
        try:
            return msgspec.json.decode(
                await body_of(self.request, MEDIA_TYPES), type=kind
            )
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(str(error).replace("$", "request")) from None

    async def describe(self) -> Any:
        """Return the subject in the path."""
        try:
            return await self.do(
                Kind.DESCRIBE_SUBJECT, pb.DescribeSubject(subject=self.subject)
            )
        except SchemaNotFound:
            raise RegistryError(
                404, 40401, f"Subject '{self.subject}' not found."
            ) from None

    async def version(self, *, deleted: bool | None = None) -> Any:
        """Return the version in the path of the subject in the path; see `versions`."""
        text = str(self.request.path_params["version"])
        is_number = text.isascii() and text.isdigit() and len(text) <= 10
        number = int(text) if is_number else 0
        if text not in {LATEST, "-1"} and not 0 < number < 2**31:
            raise RegistryError(
                422,
                42202,
                f"The version '{text[:20]}' is neither a number from 1 to 2147483647 "
                "nor 'latest'.",
            )
        known = await self.versions(deleted=deleted)
        if not (known if number == 0 else number in known):
            raise RegistryError(404, 40402, f"Version {text} not found.")
        wanted = pb.GetSchema(subject=self.subject, version=number or known[-1])
        return await self.do(Kind.GET_SCHEMA, wanted)

    async def versions(self, *, deleted: bool | None = None) -> list[int]:
        """
        Return the versions of the subject in the path.

        They include those that were not deleted for good, if the query or *deleted*
        asks for them.

        Raises:
            RegistryError: There are none.
        """
        found = await self.describe()
        versions = list(found.versions)
        if self.flag("deleted") if deleted is None else deleted:
            wanted = pb.DescribeSubject(subject=self.subject)
            versions = await self.do(Kind.DESCRIBE_SUBJECT, wanted, _readable_versions)
        if not versions:
            raise RegistryError(404, 40401, f"Subject '{self.subject}' not found.")
        return versions

    async def by_id(self) -> Any:
        """Return the version that has the id in the path."""
        text = str(self.request.path_params["id"])
        try:
            number = int(text) if text.isascii() and text.isdigit() else 0
            schema_id, version = parts_of(number if len(text) < 11 else 0)
            wanted = pb.GetSchema(schema_id=schema_id, version=version)
            return await self.do(Kind.GET_SCHEMA, wanted)
        except SchemaNotFound:
            raise RegistryError(404, 40403, f"Schema {text[:20]} not found.") from None

    async def new_schema(self) -> tuple[Any, list[ReferencedVersion]]:
        """
        Return the schema in the body, complete, and the versions that it refers to.

        Raises:
            InvalidSchema: Its type is unknown, or it cannot be completed.
        """
        body: SchemaBody = await self.body(SchemaBody)
        schema_type = TYPES.get(body.schema_type)
        if schema_type is None:
            raise InvalidSchema(
                f"there is no schema type {body.schema_type!r:.50}; choose from "
                + ", ".join(TYPES)
            )
        found = await self._definitions(schema_type, body.references)
        text = await asyncio.to_thread(_complete, schema_type, body.schema, found)
        return pb.NewSchema(type=schema_type.value, definition=text), list(found)

    async def _definitions(
        self, schema_type: SchemaType, references: list[Reference]
    ) -> dict[ReferencedVersion, str]:
        if len(references) > REFERENCES_MAX:
            raise InvalidSchema(f"a schema has at most {REFERENCES_MAX} references")
        found: dict[ReferencedVersion, str] = {}
        byte_count = 0
        for each in references:
            subject = stored_name(each.subject)
            wanted = pb.GetSchema(subject=subject, version=max(0, each.version))
            answer = await self.do(Kind.GET_SCHEMA, wanted)
            if answer.type != schema_type.value:
                raise InvalidSchema(
                    f"the schema refers to {each.subject}, which is of another type: "
                    f"{answer.type}"
                )
            reference = ReferencedVersion(
                name=each.name, subject=subject, version=answer.version
            )
            found[reference] = answer.definition
            byte_count += len(answer.definition)
            if byte_count > BODY_BYTES_MAX:
                raise InvalidSchema(
                    f"the schemas that it refers to have more than {BODY_BYTES_MAX} "
                    "bytes together"
                )
        return found

    async def shown(self, found: Any) -> dict[str, object]:
        """Return the schema of a version; of type Avro if none is named."""
        definition = found.definition
        name = NAMES.get(SchemaType(found.type))
        if name is None:
            raise InvalidSchema(
                f"{found.subject} is of type {found.type}, which Kafka's clients do "
                "not know"
            )
        if name == "AVRO":
            return {"schema": definition}
        answer: dict[str, object] = {"schema": definition, "schemaType": name}
        if name == "PROTOBUF":
            main, references = proto_references(definition)
            # Definitions that were imported have the numbers of their origin.
            numbers = {each.name: each.version for each in found.references}
            for each in references:
                each["version"] = numbers.get(str(each["name"]), each["version"])
            if references:
                answer["references"] = references
            answer["schema"] = main
            if self.request.query_params.get("format") == "serialized":
                answer["schema"] = await asyncio.to_thread(
                    _serialized_proto, definition
                )
        return answer


Handler = Callable[[RegistryCall], Awaitable[object]]
_ROUTES: list[tuple[str, str, Handler]] = []


def _answers(method: str, *paths: str) -> Callable[[Handler], Handler]:
    """Return a decorator that lets its function answer requests."""

    def add(handler: Handler) -> Handler:
        _ROUTES.extend((method, path, handler) for path in paths)
        return handler

    return add


@_answers("GET", "/schemas/types")
async def schema_types(_: RegistryCall) -> object:
    """Return the schema languages."""
    return sorted(TYPES)


@_answers("GET", "/schemas/ids/{id}")
async def schema_by_id(call: RegistryCall) -> object:
    """Return the schema with an id."""
    return await call.shown(await call.by_id())


@_answers("GET", "/schemas/ids/{id}/schema")
async def definition_by_id(call: RegistryCall) -> object:
    """Return the definition with an id alone."""
    return _definition_alone(await call.by_id())


def _definition_alone(found: Any) -> object:
    if found.type == SchemaType.PROTOBUF.value:
        # A source is no JSON.
        return proto_references(found.definition)[0]
    return msgspec.Raw(found.definition.encode())


@_answers("GET", "/schemas/ids/{id}/subjects")
async def subjects_of_id(call: RegistryCall) -> object:
    """Return the subject with an id; each id has one."""
    return [shown_name(found.subject) for found in await _listed_by_id(call)]


@_answers("GET", "/schemas/ids/{id}/versions")
async def versions_of_id(call: RegistryCall) -> object:
    """Return the subject and the version with an id."""
    return [
        {"subject": shown_name(found.subject), "version": found.version}
        for found in await _listed_by_id(call)
    ]


async def _listed_by_id(call: RegistryCall) -> list[Any]:
    """Return the version with an id; a deleted one only if the query asks for it."""
    found = await call.by_id()
    if not call.flag("deleted"):
        wanted = pb.DescribeSubject(subject=found.subject)
        known = (await call.do(Kind.DESCRIBE_SUBJECT, wanted)).versions
        if found.version not in known:
            return []
    return [found]


@_answers("GET", "/contexts")
async def contexts(_: RegistryCall) -> object:
    """Return the contexts: only the default one."""
    return ["."]


@_answers("GET", "/subjects")
async def subjects(call: RegistryCall) -> object:
    """Return the subjects that the client may see."""
    prefix = call.request.query_params.get("subjectPrefix", "")
    handler = None if call.flag("deleted") else _undeleted_subjects
    found = await call.do(Kind.LIST_SUBJECTS, pb.ListSubjects(), handler)
    names = map(shown_name, found.subjects)
    return [each for each in names if each.startswith(prefix)]


async def _undeleted_subjects(call: operations.Call, _: pb.ListSubjects) -> pb.Subjects:
    registry = call.broker.registry
    return pb.Subjects(subjects=visible_subjects(await registry.used_subjects()))


@_answers("GET", f"{_SUBJECT}/versions")
async def versions(call: RegistryCall) -> object:
    """Return the versions of a subject."""
    return await call.versions()


async def _readable_versions(call: operations.Call, m: pb.DescribeSubject) -> Any:
    return await call.broker.registry.readable_versions(m.subject)


@_answers("GET", _VERSION)
async def version(call: RegistryCall) -> object:
    """Return a version of a subject."""
    return await _registered(call, await call.version())


@_answers("GET", f"{_VERSION}/schema")
async def definition(call: RegistryCall) -> object:
    """Return the definition of a version alone."""
    return _definition_alone(await call.version())


@_answers("GET", f"{_VERSION}/referencedby")
async def referenced_by(call: RegistryCall) -> object:
    """Return the ids of the schemas that refer to a version, as far as visible."""
    found = await call.version()
    wanted = pb.GetSchema(subject=call.subject, version=found.version)
    users = await call.do(
        Kind.GET_SCHEMA, wanted, partial(_users, found, call.flag("deleted"))
    )
    return [id_of(each.schema_id, each.version) for each in users]


async def _users(
    found: Any, include_deleted: bool, call: operations.Call, _: pb.GetSchema
) -> Any:
    users = await call.broker.registry.references_to(
        found.schema_id, found.version, include_deleted=include_deleted
    )
    seen = set(visible_subjects(each.subject for each in users))
    return [each for each in users if each.subject in seen]


@_answers("POST", f"{_SUBJECT}/versions")
async def register(call: RegistryCall) -> object:
    """Register a schema, or return the same one that the subject has."""
    new, references = await call.new_schema()
    wanted = pb.RegisterSchema(
        subject=call.subject,
        schema=new,
        references=[to_wire(pb.ReferencedVersion, each) for each in references],
    )
    found = (await call.do(Kind.REGISTER_SCHEMA, wanted)).version
    return {"id": id_of(found.schema_id, found.version)}


@_answers("POST", _SUBJECT)
async def look_up(call: RegistryCall) -> object:
    """Return the version of a subject that has the schema in the body."""
    new, _ = await call.new_schema()
    known = await call.versions()
    wanted = pb.CheckSchema(subject=call.subject, schema=new)
    found = await call.do(Kind.CHECK_SCHEMA, wanted, partial(_find, known))
    if found is None:
        raise RegistryError(404, 40403, "Schema not found.")
    return await _registered(call, found)


async def _find(known: list[int], call: operations.Call, m: pb.CheckSchema) -> Any:
    return await call.broker.registry.find(m.subject, new_schema(m.schema), known)


@_answers("DELETE", _SUBJECT)
async def delete_subject(call: RegistryCall) -> object:
    """Delete a subject, for good if it was deleted before; return its versions."""
    is_final = call.flag("permanent")
    found = await call.describe()
    if is_final and found.versions:
        raise _not_deleted(40405, f"Subject '{call.subject}'")
    known = await call.versions(deleted=True)
    if not is_final and not found.versions:
        raise _is_deleted(40404, f"Subject '{call.subject}'")
    await _delete(call, pb.DeleteSchema(subject=call.subject))
    return known if is_final else list(found.versions)


@_answers("DELETE", _VERSION)
async def delete_version(call: RegistryCall) -> object:
    """Delete a version, for good if it was deleted before; return its number."""
    is_final = call.flag("permanent")
    # The latest is the latest that was not deleted.
    is_latest = call.request.path_params["version"] in {LATEST, "-1"}
    found = await call.version(deleted=not is_latest)
    what = f"Subject '{call.subject}' Version {found.version}"
    was_deleted = found.version not in (await call.describe()).versions
    if is_final and not was_deleted:
        raise _not_deleted(40407, what)
    if was_deleted and not is_final:
        raise _is_deleted(40406, what)
    wanted = pb.DeleteSchema(subject=call.subject, version=found.version)
    await _delete(call, wanted)
    return int(found.version)


def _not_deleted(code: int, what: str) -> RegistryError:
    text = "was not deleted first before being permanently deleted"
    return RegistryError(404, code, f"{what} {text}")


def _is_deleted(code: int, what: str) -> RegistryError:
    text = "was soft deleted. Set permanent=true to delete permanently"
    return RegistryError(404, code, f"{what} {text}")


@_answers("POST", _CHECK, f"{_CHECK}/{{version}}")
async def check(call: RegistryCall) -> object:
    """
    Return whether a schema may become the next version of a subject.

    A version in the path is the only one that is compared.
    """
    new, _ = await call.new_schema()
    version = None
    if "version" in call.request.path_params:
        version = (await call.version()).version
    wanted = pb.CheckSchema(subject=call.subject, schema=new)
    found = await call.do(Kind.CHECK_SCHEMA, wanted, partial(_check, version))
    answer: dict[str, object] = {"is_compatible": not found.violations}
    if call.flag("verbose"):
        answer["messages"] = [
            f"{each.path}: {each.text} (version {each.version})"
            for each in found.violations
        ]
    return answer


async def _check(
    version: int | None, call: operations.Call, m: pb.CheckSchema
) -> pb.SchemaChecked:
    registry = call.broker.registry
    try:
        found = await registry.check(m.subject, new_schema(m.schema), version=version)
    except SchemaNotFound:
        # A new subject has no versions to be compatible with.
        found = []
    return schema_checked(found)


@_answers("GET", "/config")
async def default_level(_: RegistryCall) -> object:
    """Return the compatibility mode of new subjects."""
    return {"compatibilityLevel": DEFAULT_LEVEL.name}


@_answers("GET", "/config/{subject}")
async def level(call: RegistryCall) -> object:
    """Return the compatibility mode of a subject."""
    if call.flag("defaultToGlobal"):
        try:
            found = await call.describe()
        except RegistryError:
            return await default_level(call)
    else:
        found = await call.describe()
    return {"compatibilityLevel": Compatibility.parse(found.compatibility).name}


@_answers("PUT", "/config/{subject}")
async def set_level(call: RegistryCall) -> object:
    """Set the compatibility mode of a subject."""
    body: LevelBody = await call.body(LevelBody)
    try:
        mode = Compatibility.parse(body.compatibility)
    except InvalidRequest as error:
        raise RegistryError(422, 42203, str(error)) from None
    await call.describe()
    await _set_level(call, mode)
    return {"compatibility": mode.name}


@_answers("DELETE", "/config/{subject}")
async def reset_level(call: RegistryCall) -> object:
    """Give a subject the mode of new subjects, and return the one that it had."""
    before = Compatibility.parse((await call.describe()).compatibility)
    await _set_level(call, DEFAULT_LEVEL)
    return {"compatibilityLevel": before.name}


@_answers("PUT", "/config")
@_answers("PUT", "/mode")
@_answers("PUT", "/mode/{subject}")
async def unsupported(call: RegistryCall) -> object:
    """Refuse settings that this registry does not have."""
    raise RegistryError(
        422,
        42205,
        f"{call.request.url.path} cannot be changed: new subjects are BACKWARD, PUT "
        "/config/SUBJECT sets the mode of one, and permissions make a registry "
        "read-only",
    )


@_answers("GET", "/mode", "/mode/{subject}")
async def mode(_: RegistryCall) -> object:
    """Return that schemas can be registered."""
    return {"mode": "READWRITE"}


async def _registered(call: RegistryCall, found: Any) -> dict[str, object]:
    return {
        "subject": shown_name(found.subject),
        "id": id_of(found.schema_id, found.version),
        "version": found.version,
        **await call.shown(found),
    }


async def _delete(call: RegistryCall, wanted: Message) -> None:
    handler = None if call.flag("permanent") else _hide
    try:
        await call.do(Kind.DELETE_SCHEMA, wanted, handler)
    except Conflict as error:
        raise RegistryError(422, 42206, str(error)) from None


async def _hide(call: operations.Call, m: pb.DeleteSchema) -> None:
    await call.broker.schemas.delete(m.subject, m.version or None, keep_readable=True)


async def _set_level(call: RegistryCall, mode: Compatibility) -> None:
    wanted = pb.SetCompatibility(subject=call.subject, compatibility=mode.value)
    await call.do(Kind.SET_COMPATIBILITY, wanted)


def _complete(
    schema_type: SchemaType, text: str, referenced: dict[ReferencedVersion, str]
) -> str:
    """Return a definition that needs none of the *referenced* ones."""
    if schema_type is SchemaType.PROTOBUF:
        files = {
            ProtoFile(each.name, shown_name(each.subject), each.version): definition
            for each, definition in referenced.items()
        }
        return with_proto_references(_proto_source(text, names_of(files)), files)
    named = {each.name: definition for each, definition in referenced.items()}
    if schema_type is SchemaType.AVRO:
        return with_references(text, named)
    return with_json_references(text, named)


def _proto_source(text: str, names: set[str]) -> str:
    """
    Return *text*, or the source of the descriptor that it has in base64.

    The descriptor may import files with *names*.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return text
    from pydanube.schemas.protobuf.source import source_of_descriptor  # noqa: PLC0415

    return source_of_descriptor(data, names)


def _serialized_proto(text: str) -> str:
    """Return the descriptor of a ``.proto`` source in base64."""
    from pydanube.schemas.protobuf.compiler import compile_proto  # noqa: PLC0415

    return base64.b64encode(compile_proto(text)[-1].SerializeToString()).decode()


_CODES: dict[type[BrokerError], tuple[int, int]] = {
    InvalidSchema: (422, 42201),
    InvalidName: (422, 42208),
    IncompatibleSchema: (409, 409),
    Unauthenticated: (401, 40101),
    PermissionDenied: (403, 40301),
    SchemaNotFound: (404, 40401),
    InvalidRequest: (422, 422),
}


def registry_error(error: BrokerError) -> Response:
    """Return the response of the interface to a request that failed with *error*."""
    status = http_status_of(error)
    codes = (_CODES[cls] for cls in type(error).__mro__ if cls in _CODES)
    return _answer_error(*next(codes, (status, status * 100 + 1)), str(error))


def _answer_error(status: int, code: int, text: str) -> Response:
    body = msgspec.json.encode({"error_code": code, "message": text})
    return Response(body, status, media_type=MEDIA_TYPE)


def registry_routes(
    broker: Callable[[], Broker], authenticator: Authenticator
) -> list[Route]:
    """Return the routes of the interface for *broker*."""
    return [
        _route(method, path, handler, broker, authenticator)
        for method, path, handler in _ROUTES
    ]


def _route(
    method: str,
    path: str,
    handler: Handler,
    broker: Callable[[], Broker],
    authenticator: Authenticator,
) -> Route:
    async def respond(request: Request) -> Response:
        try:
            value = await handler(RegistryCall(request, broker(), authenticator))
        except RegistryError as error:
            return _answer_error(error.status, error.code, str(error))
        except ClientDisconnect:
            return registry_error(InvalidRequest("the request ended before its body"))
        except Exception as error:  # noqa: BLE001  # The client gets it.
            doing = f"{request.method} {request.url.path}"
            return registry_error(as_broker_error(error, doing))
        return Response(msgspec.json.encode(value), media_type=MEDIA_TYPE)

    return _RegistryRoute(path, respond, methods=[method])


class _RegistryRoute(Route):
    """A route with names in its path that may have slashes, if they are encoded."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if "raw_path" in scope and scope["path"].startswith(PATHS):
            parts = scope["raw_path"].decode("latin-1").split("/")
            path = "/".join(stored_name(unquote(part)) for part in parts)
            scope = {**scope, "path": path}
        return super().matches(scope)
