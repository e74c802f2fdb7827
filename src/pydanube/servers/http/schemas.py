"""Subjects, versions and the schemas of topics in the JSON API."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydanube.broker.schema_registry import NewSchema
from pydanube.model.schemas import (
    Compatibility,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
)
from pydanube.servers.authorization import visible_subjects
from pydanube.servers.http.endpoints import Call, Endpoints, parse_count
from pydanube.servers.http.responses import json_response
from pydanube.wire.native.kinds import Kind

SUBJECT = "/schemas/{subject}"
VERSION = f"{SUBJECT}/versions/{{version}}"

SCHEMAS = Endpoints()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """The body of ``POST …/versions``."""

    type: SchemaType
    definition: str = ""
    message: str | None = None
    description: str = ""
    created_by: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The body of ``POST …/check``."""

    type: SchemaType
    definition: str = ""
    message: str | None = None
    compatibility: Compatibility | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The body of ``PUT …/compatibility``."""

    compatibility: Compatibility


@SCHEMAS.add("GET", "/schemas", Kind.LIST_SUBJECTS)
async def list_subjects(call: Call[None]) -> dict[str, list[str]]:
    """Return the names of all subjects."""
    return {"subjects": visible_subjects(await call.broker.registry.subjects())}


@SCHEMAS.add("GET", SUBJECT, Kind.DESCRIBE_SUBJECT)
async def describe_subject(call: Call[None]) -> SubjectDescription:
    """Return a subject: its id, type, compatibility mode and versions."""
    return await call.broker.registry.describe(call.path["subject"])


@SCHEMAS.add("DELETE", SUBJECT, Kind.DELETE_SCHEMA, query=("force",), status=204)
async def delete_subject(call: Call[None]) -> None:
    """Delete a subject; ``?force=true`` if topics may use it."""
    await call.broker.schemas.delete(call.path["subject"], force=call.is_forced)


@SCHEMAS.add("GET", f"{SUBJECT}/versions", Kind.LIST_SCHEMA_VERSIONS)
async def list_versions(call: Call[None]) -> dict[str, list[SchemaVersion]]:
    """Return the versions of a subject with their definitions."""
    return {"versions": await call.broker.registry.versions(call.path["subject"])}


@SCHEMAS.add(
    "POST", f"{SUBJECT}/versions", Kind.REGISTER_SCHEMA, body=NewVersion, status=201
)
async def register_version(call: Call[NewVersion]) -> object:
    """Register a version; status 200 if the same schema is registered already."""
    version, is_new = await call.broker.registry.register(
        call.path["subject"], NewSchema(**asdict(call.body))
    )
    return json_response(version, 201 if is_new else 200)


@SCHEMAS.add("GET", VERSION, Kind.GET_SCHEMA)
async def describe_version(call: Call[None]) -> SchemaVersion:
    """Return a version by its number, or the version ``latest``."""
    version = None if call.path["version"] == "latest" else _version_of(call)
    return await call.broker.registry.version(call.path["subject"], version)


@SCHEMAS.add("DELETE", VERSION, Kind.DELETE_SCHEMA, query=("force",), status=204)
async def delete_version(call: Call[None]) -> None:
    """Delete a version; ``?force=true`` if it may be the only one a topic allows."""
    await call.broker.schemas.delete(
        call.path["subject"], _version_of(call), force=call.is_forced
    )


@SCHEMAS.add("POST", f"{SUBJECT}/check", Kind.CHECK_SCHEMA, body=Candidate)
async def check_schema(call: Call[Candidate]) -> object:
    """Check whether a schema may become the next version of a subject."""
    fields = asdict(call.body)
    mode = fields.pop("compatibility")
    violations = await call.broker.registry.check(
        call.path["subject"], NewSchema(**fields), mode
    )
    return {
        "is_compatible": not violations,
        "violations": [
            {
                "version": each.version,
                "direction": each.direction,
                **asdict(each.incompatibility),
            }
            for each in violations
        ],
    }


@SCHEMAS.add("PUT", f"{SUBJECT}/compatibility", Kind.SET_COMPATIBILITY, body=Mode)
async def set_compatibility(call: Call[Mode]) -> SubjectDescription:
    """Set the compatibility mode for later versions of a subject."""
    registry, subject = call.broker.registry, call.path["subject"]
    await registry.set_compatibility(subject, call.body.compatibility)
    return await registry.describe(subject)


@SCHEMAS.add("GET", "/schema-ids/{schema_id}", Kind.GET_SCHEMA, query=("version",))
async def schema_by_id(call: Call[None]) -> SchemaVersion:
    """Return the latest version, or ``?version=``, of the subject with an id."""
    schema_id = parse_count("schema id", call.path["schema_id"])
    version = call.query.get("version")
    return await call.broker.registry.by_id(
        schema_id, None if version is None else parse_count("version", version)
    )


def _version_of(call: Call[None]) -> int:
    return parse_count("version", call.path["version"])
