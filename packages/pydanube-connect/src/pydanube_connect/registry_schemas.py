"""
Schemas of Confluent's registry, which values in Kafka begin with the ids of.

A value of its serializers is a zero byte, the id in four bytes, for Protobuf the path
to the message in its file, and the encoded value.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from pydanube.model.errors import InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.pure.confluent_schemas import (
    TYPES,
    with_json_references,
    with_proto_references,
    with_references,
)
from pydanube.schemas.pure.proto_files import ProtoFile
from pydanube_connect.pure.failures import JSON_ERRORS, ConnectorFailed, Transient
from pydanube_connect.pure.records import Record, RecordSchema

if TYPE_CHECKING:
    import httpx  # It takes long to import.

MAGIC = 0
ID_BYTES = 5
"""The length of the zero byte and the id."""
REQUEST_S = 10.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
IDS_MAX = 1000
"""With more ids, those that were looked up are forgotten."""
REFERENCES_MAX, DEPTH_MAX = 100, 10
"""To how many schemas one may refer, and how often these to others."""
VERSIONS_MAX = 10_000
"""How many versions are looked up for one id: the most that a subject has here."""
SUBJECT_LENGTH_MAX = 1000
DEFINITION_LENGTH_MAX = 1024 * 1024
KNOWN_LENGTH_MAX = 64 * 1024 * 1024
"""With more characters of definitions, those that were looked up are forgotten."""
UNKNOWN_S = 30.0
"""How long an id that cannot be used is not looked up again."""
_NOT_FOUND = 404
_LATER = frozenset({408, 425, 429})
"""Status codes that ask to repeat a request later."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Stored(msgspec.Struct, rename="camel"):
    """A schema in an answer of the registry."""

    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] | None = None


class _Place(msgspec.Struct):
    """A subject that has a schema, and its version there."""

    subject: str
    version: int


class _Absent(msgspec.Struct):
    """The body of an answer of the registry that it does not have something."""

    error_code: int


class _Unusable(Exception):
    """A schema that no value can be decoded with."""


class RegistrySchemas:
    """
    The schemas of a registry by their ids; made by ``open_registry_schemas``.

    Its methods block.

    Bounds: ``IDS_MAX`` ids, with ``KNOWN_LENGTH_MAX`` characters of definitions, and
    as many for an id that is looked up.
    """

    def __init__(self, client: httpx.Client, now: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._known: dict[tuple[str, int], RecordSchema] = {}
        self._unusable: dict[tuple[str, int], tuple[str, float]] = {}
        self._versions: dict[tuple[str, int], tuple[SchemaType, str]] = {}
        self._length = 0
        self._looked_up = self._looked_up_length = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Let a look-up in another thread end soon, as if nobody answered."""
        self._is_stopped = True

    def decoded(self, record: Record, topic: str) -> Record:
        """
        Return *record* of a *topic* of Kafka with its schema, and without the id.

        A value that begins with no id stays as it is.  If the registry does not know
        the id, or the schema cannot be used, the record has a problem.

        Raises:
            Transient: The registry does not answer.
            ConnectorFailed: The registry refuses the user.
        """
        value: bytes = record.value
        if len(value) < ID_BYTES or value[0] != MAGIC:
            return record
        number = int.from_bytes(value[1:ID_BYTES])
        try:
            schema = self._find(topic, number)
            start = ID_BYTES
            if schema.type is SchemaType.PROTOBUF:
                start = _end_of_path(value)
        except _Unusable as error:
            return record.replace(problem=str(error))
        return record.replace(value=value[start:], schema=schema)

    def _find(self, topic: str, number: int) -> RecordSchema:
        key = topic, number
        if key in self._known:
            return self._known[key]
        if key in self._unusable:
            text, until = self._unusable[key]
            if self._now() < until:
                raise _Unusable(text)
        if (
            len(self._known) + len(self._unusable) >= IDS_MAX
            or self._length > KNOWN_LENGTH_MAX
        ):
            self._known.clear()
            self._unusable.clear()
            self._versions.clear()
            self._length = 0
        self._looked_up = self._looked_up_length = 0
        try:
            found = self._look_up(topic, number)
        except (_Unusable, InvalidSchema) as error:
            text = f"the schema {number} of the registry cannot be used: {error}"
            self._unusable[key] = text, self._now() + UNKNOWN_S
            raise _Unusable(text) from error
        self._known[key] = found
        return found

    def _look_up(self, topic: str, number: int) -> RecordSchema:
        stored = self._ask(f"schemas/ids/{number}", _Stored)
        if stored is None:
            raise _Unusable("the registry does not know it")
        type_, own = _type_of(stored), self._complete(stored)
        places = self._ask(f"schemas/ids/{number}/versions", list[_Place])
        if not places:
            # Its versions are deleted, or the registry is too old to tell them.
            return RecordSchema(type_, (own,))
        expected = f"{topic}-value"
        place = next((each for each in places if each.subject == expected), places[0])
        path = f"subjects/{_quoted(place.subject)}/versions"
        numbers = self._ask(path, list[int]) or []
        if len(numbers) > VERSIONS_MAX:
            raise _Unusable(f"its subject has more than {VERSIONS_MAX:,} versions")
        older = [
            self._version(place.subject, each)
            for each in sorted(numbers)
            if each < place.version
        ]
        # A subject whose compatibility is not checked may have changed its language.
        texts = [text for each, text in older if each is type_]
        return RecordSchema(type_, (*texts, own))

    def _version(self, subject: str, version: int) -> tuple[SchemaType, str]:
        key = subject, version
        if key not in self._versions:
            stored = self._stored(subject, version)
            self._versions[key] = _type_of(stored), self._complete(stored)
        return self._versions[key]

    def _stored(self, subject: str, version: int) -> _Stored:
        self._looked_up += 1
        if self._looked_up > VERSIONS_MAX:
            raise _Unusable(f"it needs more than {VERSIONS_MAX:,} versions of schemas")
        path = f"subjects/{_quoted(subject)}/versions/{version}"
        found: _Stored | None = self._ask(path, _Stored)
        if found is None:
            raise _Unusable(f"the registry has no version {version} of {subject}")
        return found

    def _complete(self, stored: _Stored, path: tuple[tuple[str, int], ...] = ()) -> str:
        """Return the text of a schema, at the end of a path, with its references."""
        type_, references = _type_of(stored), stored.references or []
        if references and (len(references) > REFERENCES_MAX or len(path) == DEPTH_MAX):
            raise _Unusable(
                f"it refers to more than {REFERENCES_MAX} schemas, or these to others "
                f"more than {DEPTH_MAX} times"
            )
        texts: dict[str, str] = {}
        for each in references:
            key = each.subject, each.version
            if key in path:
                raise _Unusable(
                    f"version {each.version} of {each.subject} contains itself"
                )
            if key not in self._versions:
                other = self._stored(*key)
                text = self._complete(other, (*path, key))
                self._versions[key] = _type_of(other), text
            texts[each.name] = self._versions[key][1]
        if not references:
            complete = stored.schema
        elif type_ is SchemaType.AVRO:
            complete = with_references(stored.schema, texts)
        elif type_ is SchemaType.JSON_SCHEMA:
            complete = with_json_references(stored.schema, texts)
        else:
            files = {ProtoFile(name): text for name, text in texts.items()}
            complete = with_proto_references(stored.schema, files)
        self._length += len(complete)
        self._looked_up_length += len(complete)
        if len(complete) > DEFINITION_LENGTH_MAX:
            raise _Unusable(
                f"with the schemas that it refers to, it has more than "
                f"{DEFINITION_LENGTH_MAX:,} characters"
            )
        if self._looked_up_length > KNOWN_LENGTH_MAX:
            raise _Unusable(
                f"its versions have more than {KNOWN_LENGTH_MAX:,} characters"
            )
        return complete

    def _ask(self, path: str, kind: Any) -> Any:
        """Return the answer to a request; None: the registry does not have it."""
        import httpx  # noqa: PLC0415  # It takes long to import.

        content = bytearray()
        until = self._now() + REQUEST_S
        try:
            with self._client.stream("GET", path) as answer:
                is_absent = answer.status_code == _NOT_FOUND
                if answer.is_server_error or answer.status_code in _LATER:
                    raise Transient(f"the schema registry answers {answer.status_code}")
                if not answer.is_success and not is_absent:
                    raise ConnectorFailed(
                        f"the schema registry answers {answer.status_code} to GET "
                        f"{answer.url.copy_with(userinfo=b'')}"
                    )
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > ANSWER_BYTES_MAX:
                        raise _Unusable(f"{path} has more than {ANSWER_BYTES_MAX} B")
                    if self._is_stopped or self._now() > until:
                        raise Transient("the schema registry answers too slowly")
        except httpx.HTTPError as error:
            text = f"the schema registry: {type(error).__name__}: {error}"
            raise Transient(text) from error
        if self._is_stopped:
            raise Transient("the connector is stopping")
        try:
            found = msgspec.json.decode(content, type=_Absent if is_absent else kind)
        except JSON_ERRORS as error:
            if is_absent:
                # A proxy says so while the registry is away.
                text = f"the schema registry answers 404 to {path}, without a reason"
                raise Transient(text) from error
            text = f"the schema registry answers what none does to {path}: {error}"
            raise ConnectorFailed(text) from error
        return None if is_absent else found


def _quoted(subject: str) -> str:
    if len(subject) > SUBJECT_LENGTH_MAX:
        raise _Unusable(
            f"the name of a subject has more than {SUBJECT_LENGTH_MAX} characters"
        )
    return quote(subject, safe="")


def _type_of(stored: _Stored) -> SchemaType:
    found = TYPES.get(stored.schema_type)
    if found is None:
        raise _Unusable(f"its language is {stored.schema_type!r:.100}")
    return found


def _end_of_path(value: bytes) -> int:
    """
    Return where a Protobuf value begins after the path to its message.

    Raises:
        _Unusable: It is not the first message of its file.
    """
    # The first one is abbreviated; some serializers write its path in full.
    for path in (b"\0", b"\2\0"):
        if value.startswith(path, ID_BYTES):
            return ID_BYTES + len(path)
    raise _Unusable(
        "the value is not of the first message in its file, which alone has the schema "
        "in the registry: use a file for each message"
    )


@contextmanager
def open_registry_schemas(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    ca_file: str | None = None,
) -> Iterator[RegistrySchemas]:
    """Open the registry at *url*; nothing is asked before it is needed."""
    import httpx  # noqa: PLC0415  # It takes long to import.

    auth = None if username is None else (username, password or "")
    with httpx.Client(
        base_url=url.rstrip("/") + "/",
        auth=auth,
        timeout=REQUEST_S,
        follow_redirects=True,
        verify=ssl.create_default_context(cafile=ca_file),
    ) as client:
        yield RegistrySchemas(client, time.monotonic)
