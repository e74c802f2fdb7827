"""
The requests of the protocol that the listener serves, and their versions.

The types of messages are those of ``kio``, one for each version.  Code that answers
several versions names the fields of the newest; ``Answers`` leaves out those that an
older version lacks.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import fields
from enum import IntEnum
from functools import cache
from typing import Any, TypeAlias

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._parse import get_field_reader
from kio.serial.readers import read_unsigned_varint
from kio.static.constants import EntityType

from pydanube.model.lazy_dataclasses import dataclass

__all__ = ["Answers", "Api", "BadRequest", "ErrorCode", "Request", "parse_request"]


class Api(IntEnum):
    """The requests that are served, with their keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


VERSIONS: dict[Api, tuple[int, int]] = {
    Api.PRODUCE: (3, 9),
    # From version 13 on, topics have no names in the requests.
    Api.FETCH: (4, 12),
    Api.LIST_OFFSETS: (1, 6),
    # librdkafka takes the memory for an answer by its length, and finds version 9 too
    # short for many short names.
    Api.METADATA: (0, 12),
    # From version 10 on, topics have no names in the requests.
    Api.OFFSET_COMMIT: (2, 9),
    Api.OFFSET_FETCH: (1, 9),
    Api.FIND_COORDINATOR: (0, 4),
    Api.JOIN_GROUP: (0, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
    Api.DESCRIBE_GROUPS: (0, 5),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: (0, 1),
    Api.API_VERSIONS: (0, 3),
    # From version 7 on, the answer has UUIDs.
    Api.CREATE_TOPICS: (2, 6),
    Api.DELETE_TOPICS: (1, 5),
    Api.DELETE_RECORDS: (0, 2),
    Api.INIT_PRODUCER_ID: (0, 4),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    # From version 4 on, brokers ask for several transactions at once.
    Api.ADD_PARTITIONS_TO_TXN: (0, 3),
    Api.ADD_OFFSETS_TO_TXN: (0, 3),
    Api.END_TXN: (0, 3),
    # Before version 3, members of groups do not say who they are.
    Api.TXN_OFFSET_COMMIT: (3, 3),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.CREATE_PARTITIONS: (0, 3),
    Api.DELETE_GROUPS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.OFFSET_DELETE: (0, 0),
    Api.DESCRIBE_CLUSTER: (0, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
}
"""The first and the last version of each request."""

_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
ENTRIES_MAX = 200
"""An answer with more entries, of 10 to 20 µs each, is a long one."""
_Reader: TypeAlias = "Callable[[bytes, int], tuple[Any, int]]"


class BadRequest(Exception):
    """The bytes are not a request that the listener can answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of a client."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: Any
    """The message, of the type of its version; None if the version is unknown."""

    @property
    def answers(self) -> Answers:
        """The types of the answer."""
        return answers_of(self.api, self.version)


class Answers:
    """The types of an answer in one version, as functions that make them."""

    def __init__(self, api: Api, version: int) -> None:
        self._module = load_payload_module(api, version, EntityType.response)
        self._makers: dict[str, Callable[..., Any]] = {}
        self._write = entity_writer(load_response_schema(api, version))
        header: Any = load_response_schema(api, version).__header_schema__
        self._write_header, self._header = entity_writer(header), header

    def __getattr__(self, name: str) -> Callable[..., Any]:
        maker = self._makers.get(name)
        if maker is None:
            maker = self._makers[name] = _maker_of(getattr(self._module, name, None))
        return maker

    def encode(self, answer: Any, correlation_id: int) -> bytes:
        """Return the bytes of *answer*, with its length."""
        out = io.BytesIO()
        out.write(b"\0\0\0\0")
        self._write_header(out, self._header(correlation_id=correlation_id))
        self._write(out, answer)
        out.seek(0)
        out.write(_LENGTH.pack(out.getbuffer().nbytes - _LENGTH.size))
        return out.getvalue()


def is_long(answer: Any, entries_max: int = ENTRIES_MAX) -> bool:
    """Return whether to encode *answer* beside the event loop: it has many entries."""
    todo, left = [answer], entries_max
    while todo:
        entity = todo.pop()
        for name in entity.__dataclass_fields__:
            value = getattr(entity, name)
            if type(value) is tuple and value:
                left -= len(value)
                if left < 0:
                    return True
                if hasattr(value[0], "__dataclass_fields__"):
                    todo += value
    return False


@cache
def answers_of(api: Api, version: int) -> Answers:
    """Return the types of the answers to a request."""
    return Answers(api, version)


def _maker_of(type_: Any) -> Callable[..., Any]:
    if type_ is None:
        # This version has no such part.
        return lambda **_: None
    known = frozenset(type_.__dataclass_fields__)

    def make(**fields: Any) -> Any:
        return type_(**{name: fields[name] for name in fields if name in known})

    return make


def parse_request(frame: bytes) -> Request:
    """
    Return the request in *frame*, which follows the length.

    Raises:
        BadRequest: It is damaged, or its kind or version is not served.
    """
    if len(frame) < _PREFIX.size:
        raise BadRequest(f"a request of {len(frame)} bytes")
    key, version, correlation_id = _PREFIX.unpack_from(frame)
    try:
        api = Api(key)
    except ValueError:
        raise BadRequest(f"the request {key} is not served") from None
    first, last = VERSIONS[api]
    if not first <= version <= last:
        if api is not Api.API_VERSIONS:
            raise BadRequest(
                f"version {version} of {api.name} is not served; {first} to {last} are"
            )
        # Clients expect an answer of version 0, which tells them the versions.
        return Request(
            api=api, version=0, correlation_id=correlation_id, client_id="", body=None
        )
    try:
        read_header, read_body = _readers_of(api, version)
        header, at = read_header(frame, 0)
        body = read_body(frame, at)[0]
    except Exception as error:
        raise BadRequest(f"a request of {api.name} is damaged: {error}") from error
    return Request(
        api=api,
        version=version,
        correlation_id=correlation_id,
        client_id=header.client_id or "",
        body=body,
    )


@cache
def _readers_of(api: Api, version: int) -> tuple[_Reader, _Reader]:
    schema: Any = load_request_schema(api, version)
    header = schema.__header_schema__
    return _reader_of(header, is_header=True), _reader_of(schema)


def _reader_of(schema: Any, *, is_header: bool = False) -> _Reader:
    """
    Return a function that reads a message at an offset, and where it ends.

    Unknown tagged fields are passed over, as clients expect.  The readers of ``kio``
    for whole messages refuse them.
    """
    plain, tagged = list[tuple[str, Any]](), dict[int, tuple[str, Any]]()
    for field in fields(schema):
        tag = field.metadata.get("tag")
        read = get_field_reader(schema, field, is_header, tag is not None)
        if tag is None:
            plain.append((field.name, read))
        else:
            tagged[tag] = field.name, read

    def read_message(data: bytes, at: int) -> tuple[Any, int]:
        values = {}
        for name, read in plain:
            values[name], size = read(data, at)
            at += size
        if schema.__flexible__:
            count, at = _read_unsigned(data, at)
            for _ in range(count):
                tag, at = _read_unsigned(data, at)
                length, at = _read_unsigned(data, at)
                if at + length > len(data):
                    raise BadRequest("a tagged field is cut off")
                if tag in tagged:
                    name, read = tagged[tag]
                    values[name], _ = read(data, at)
                at += length
        return schema(**values), at

    return read_message


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    value, size = read_unsigned_varint(data, at)
    return value, at + size
