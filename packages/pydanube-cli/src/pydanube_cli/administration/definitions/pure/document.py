"""
The definitions of a broker or a cluster as a document in JSON.  Pure.

It has namespaces, schemas, topics with their subscriptions, roles, bindings and stored
connectors.  It has no messages, no positions of subscriptions, and no secrets: API keys
are left out.  Settings have the names that ``danube topics configure`` shows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pydanube.model.errors import InvalidRequest

DOCUMENT_BYTES_MAX = 64 * 1024 * 1024

Settings = dict[str, Any]


class _Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of the document."""


class ReferenceDefinition(_Part):
    """A version that another one refers to."""

    name: str
    subject: str
    version: int
    """The number that the version has in this document."""


class SchemaDefinition(_Part, omit_defaults=True):
    """One version of a subject."""

    type: str
    definition: str = ""
    message: str | None = None
    description: str = ""
    tags: list[str] = []
    version: int | None = None
    """Its number; None: one more than that of the version before."""
    references: list[ReferenceDefinition] = []


class SubjectDefinition(_Part):
    """A subject with its versions, in order."""

    compatibility: str
    versions: list[SchemaDefinition]

    def numbered(self) -> list[tuple[int, SchemaDefinition]]:
        """Return the versions with their numbers."""
        number, found = 0, list[tuple[int, SchemaDefinition]]()
        for each in self.versions:
            number = each.version or number + 1
            found.append((number, each))
        return found


class SubscriptionDefinition(_Part):
    """A subscription of a topic."""

    type: Literal["exclusive", "failover", "shared", "key_shared"]
    settings: Settings = {}


class TopicDefinition(_Part, omit_defaults=True):
    """A topic, of which the settings apply to each partition."""

    partitions: int | None = None
    """None: it has no partitions."""
    reliable: bool = True
    durability: Literal["durable", "written"] = "durable"
    ttl_s: float | None = None
    settings: Settings = {}
    subscriptions: dict[str, SubscriptionDefinition] = {}


class RoleDefinition(_Part):
    """A role that is not built in."""

    permissions: list[str]
    patterns: list[str]


class BindingDefinition(_Part):
    """Roles of one member."""

    member: str
    roles: list[str]
    patterns: list[str]


class ConnectorDefinition(_Part, omit_defaults=True):
    """A stored connector."""

    definition: dict[str, Any]
    """The section of a file of connectors; secrets are references."""
    is_paused: bool = False


class Definitions(_Part):
    """The whole document; each part is by name."""

    version: Literal[1] = 1
    namespaces: dict[str, Settings] = {}
    subjects: dict[str, SubjectDefinition] = {}
    topics: dict[str, TopicDefinition] = {}
    roles: dict[str, RoleDefinition] = {}
    bindings: dict[str, BindingDefinition] = {}
    connectors: dict[str, ConnectorDefinition] = {}


def parse_definitions(content: bytes) -> Definitions:
    """
    Return the definitions in a document.

    Raises:
        InvalidRequest: It is too long, no JSON, or has something that is not defined;
            the error names the place.
    """
    if len(content) > DOCUMENT_BYTES_MAX:
        raise InvalidRequest(
            f"the definitions have {len(content):,} bytes; at most "
            f"{DOCUMENT_BYTES_MAX:,} are allowed"
        )
    try:
        return msgspec.json.decode(content, type=Definitions)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"the file has no definitions: {error}; danube export writes them"
        ) from error


def encode_definitions(definitions: Definitions) -> bytes:
    """Return *definitions* as a document, sorted by name."""
    content = msgspec.json.encode(definitions, order="sorted")
    return msgspec.json.format(content, indent=2) + b"\n"
