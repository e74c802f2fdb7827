"""What is said of schemas: types, compatibility, and how a topic uses them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydanube.model.errors import InvalidRequest


class SchemaType(Enum):
    """The language that a schema is written in; the values are wire facts."""

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
    def parse(cls, text: str) -> SchemaType:
        """
        The type that *text* names, or one of the names that the original takes.

        Raises:
            InvalidRequest: It names none.
        """
        name = text.strip().lower()
        try:
            return cls(_TYPE_ALIASES.get(name, name))
        except ValueError:
            raise InvalidRequest(
                f"there is no schema type {text!r}; choose from "
                f"{', '.join(each.value for each in cls)}"
            ) from None

    @property
    def is_primitive(self) -> bool:
        """Whether the type says everything, so that there is no text."""
        return self in (SchemaType.BYTES, SchemaType.STRING, SchemaType.NUMBER)


_TYPE_ALIASES = {
    "json": "json_schema",
    "proto": "protobuf",
    "int64": "number",
    "int": "number",
    "float": "number",
    "double": "number",
}


class Compatibility(Enum):
    """
    What a new version of a subject must be able to do; the values are wire facts.

    The transitive modes ask it of all versions, the others of the latest one.
    """

    NONE = "none"
    """Nothing."""
    BACKWARD = "backward"
    """Who reads with the new version understands what the old one wrote."""
    FORWARD = "forward"
    """Who reads with the old version understands what the new one writes."""
    FULL = "full"
    """Both."""
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL_TRANSITIVE = "full_transitive"

    @classmethod
    def parse(cls, text: str) -> Compatibility:
        """
        The mode that *text* names, in any case.

        Raises:
            InvalidRequest: It names none.
        """
        try:
            return cls(text.strip().lower().replace("-", "_"))
        except ValueError:
            raise InvalidRequest(f"Invalid compatibility mode: {text}") from None

    @property
    def is_transitive(self) -> bool:
        """Whether all versions count, not only the latest."""
        return self.value.endswith("_transitive")

    @property
    def new_reads_old(self) -> bool:
        """Whether the new version must understand what older ones wrote."""
        return self.value.startswith(("backward", "full"))

    @property
    def old_reads_new(self) -> bool:
        """Whether older versions must understand what the new one writes."""
        return self.value.startswith(("forward", "full"))


class SchemaPolicy(Enum):
    """What a topic does with messages that do not keep to its subject."""

    NONE = "none"
    """It does not look."""
    WARN = "warn"
    """It takes them, counts them and says so in the log."""
    ENFORCE = "enforce"
    """It refuses the batch."""

    @classmethod
    def parse(cls, text: str) -> SchemaPolicy:
        """
        The policy that *text* names, in any case.

        Raises:
            InvalidRequest: It names none.
        """
        try:
            return cls(text.strip().lower())
        except ValueError:
            raise InvalidRequest(
                f"Invalid validation policy: '{text}'. Must be 'none', 'warn', or "
                "'enforce'"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of a subject, as it was registered."""

    subject: str
    schema_id: int
    """Of the subject: all its versions have it."""
    version: int
    """From 1."""
    type: SchemaType
    definition: str
    """The text as it was registered; empty for primitive types."""
    message: str | None = None
    """Protobuf only: which message of the text a payload is."""
    fingerprint: str
    description: str = ""
    created_at: int
    """Microseconds since 1970, UTC."""
    created_by: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDescription:
    """A subject at one moment."""

    subject: str
    schema_id: int
    type: SchemaType
    compatibility: Compatibility
    versions: tuple[int, ...]
    """Those that were not deleted, in order."""
    tags: tuple[str, ...] = ()
    """Of the latest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSchema:
    """Which subject the messages of a topic keep to, and what if they do not."""

    subject: str
    policy: SchemaPolicy = SchemaPolicy.WARN
    validates_payload: bool = False
    """Also look into each payload, not only at the schema id."""
    version: int | None = None
    """The only version that messages may have; None: any."""
    version_min: int | None = None
    """The first version that messages may have; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """What a producer means to write: a version of a subject, by default the latest."""

    subject: str
    version: int | None = None
    """This one and no other."""
    version_min: int | None = None
    """The latest, which must not be older than this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSchema:
    """What a producer's reference came to when it was opened."""

    reference: SchemaReference
    schema_id: int
    version: int
