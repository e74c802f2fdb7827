"""Schemas: their types, compatibility, and their use by topics."""

from __future__ import annotations

from enum import Enum
from typing import Self

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass


class _Choice(Enum):
    """A choice that users make by its name."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Return the member that *text* names, in upper or lower case.

        Raises:
            InvalidRequest: There is no such member.
        """
        try:
            return cls(text.strip().lower().replace("-", "_"))
        except ValueError:
            raise InvalidRequest(cls._refusal(text)) from None

    @classmethod
    def _refusal(cls, text: str) -> str:
        """Return the error message for a name that no member has."""
        raise NotImplementedError


class SchemaType(_Choice):
    """The language of a schema; the values are part of the wire format."""

    BYTES = "bytes"
    """Any payload."""
    STRING = "string"
    """UTF-8 text."""
    NUMBER = "number"
    """One number: eight bytes, little-endian, int64 or float64."""
    JSON_SCHEMA = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @classmethod
    def _missing_(cls, value: object) -> SchemaType | None:
        name = _TYPE_ALIASES.get(value)
        return None if name is None else cls(name)

    @classmethod
    def _refusal(cls, text: str) -> str:
        names = ", ".join(each.value for each in cls)
        return f"there is no schema type {text!r}; choose from {names}"

    @property
    def is_primitive(self) -> bool:
        """Whether schemas of the type have no definition."""
        return self in (SchemaType.BYTES, SchemaType.STRING, SchemaType.NUMBER)


_TYPE_ALIASES: dict[object, str] = {
    "json": "json_schema",
    "proto": "protobuf",
    "int64": "number",
    "int": "number",
    "float": "number",
    "double": "number",
}


class Compatibility(_Choice):
    """
    The versions of a subject that must be able to read each other's data.

    The transitive modes compare a new version with all versions, the others only with
    the latest one.  The values are part of the wire format.
    """

    NONE = "none"
    """No rule."""
    BACKWARD = "backward"
    """The new version can read data written with the old one."""
    FORWARD = "forward"
    """The old version can read data written with the new one."""
    FULL = "full"
    """Both."""
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL_TRANSITIVE = "full_transitive"

    @classmethod
    def _refusal(cls, text: str) -> str:
        return f"Invalid compatibility mode: {text}"

    @property
    def is_transitive(self) -> bool:
        """Whether a new version is compared with all versions."""
        return self.value.endswith("_transitive")

    @property
    def new_reads_old(self) -> bool:
        """Whether the new version must be able to read older data."""
        return self.value.startswith(("backward", "full"))

    @property
    def old_reads_new(self) -> bool:
        """Whether older versions must be able to read new data."""
        return self.value.startswith(("forward", "full"))


class SchemaPolicy(_Choice):
    """The handling of messages that do not match a topic's schema."""

    NONE = "none"
    """Do not check messages."""
    WARN = "warn"
    """Accept the messages, count them and log a warning."""
    ENFORCE = "enforce"
    """Refuse the batch."""

    @classmethod
    def _refusal(cls, text: str) -> str:
        return (
            f"Invalid validation policy: '{text}'. Must be 'none', 'warn', or 'enforce'"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedVersion:
    """A version of a subject that another schema refers to."""

    name: str
    """The name that the other schema uses, such as the path of a file."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of a subject, as it was registered."""

    subject: str
    schema_id: int
    """The id of the subject, which all its versions share."""
    version: int
    """From 1."""
    type: SchemaType
    definition: str
    """The registered text; empty for primitive types."""
    message: str | None = None
    """Protobuf only: the message type of payloads."""
    fingerprint: str
    description: str = ""
    created_at: int
    """Microseconds since 1970, UTC."""
    created_by: str = ""
    tags: tuple[str, ...] = ()
    references: tuple[ReferencedVersion, ...] = ()
    """The versions that cannot be deleted before this one, of subjects that the client
    may see; *definition* is complete without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDescription:
    """A subject at one moment."""

    subject: str
    schema_id: int
    type: SchemaType
    compatibility: Compatibility
    versions: tuple[int, ...]
    """The versions that were not deleted, in order."""
    tags: tuple[str, ...] = ()
    """The tags of the latest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSchema:
    """The schema of a topic's messages, and the handling of others."""

    subject: str
    policy: SchemaPolicy = SchemaPolicy.WARN
    validates_payload: bool = False
    """Whether to validate each payload, not only the schema id."""
    version: int | None = None
    """The only allowed version; None: any."""
    version_min: int | None = None
    """The lowest allowed version; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """The schema that a producer requests: by default the latest version."""

    subject: str
    version: int | None = None
    """Exactly this version."""
    version_min: int | None = None
    """The latest version, which must not be older than this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSchema:
    """The schema version that a producer was opened with."""

    reference: SchemaReference
    schema_id: int
    version: int
