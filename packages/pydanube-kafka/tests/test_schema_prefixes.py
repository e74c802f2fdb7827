"""Prefixes outlive their schemas, and unknown ids are not looked up often."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pydanube.model.schemas import SchemaType
from pydanube_broker.broker.publishing.schema_registry import (
    NewSchema,
    PayloadEncoding,
    SchemaRegistry,
)
from pydanube_kafka.schema_prefixes import UNKNOWN_S, SchemaPrefixes
from support.fakes.memory_store import MemoryStore

NESTED = """syntax = "proto3";
message Other { int32 a = 1; }
message Outer { message Inner { int32 id = 1; } Inner one = 1; }
"""


@pytest.fixture
def registry():
    return SchemaRegistry(MemoryStore(), lambda: 0)


async def test_prefixes_outlive_the_deletion_of_their_schemas(registry):
    avro = NewSchema(type=SchemaType.AVRO, definition='"long"')
    text = NewSchema(type=SchemaType.STRING, definition="")
    nested = NewSchema(
        type=SchemaType.PROTOBUF, definition=NESTED, message="Outer.Inner"
    )
    for subject, new in (("a", avro), ("s", text), ("p", nested)):
        await registry.register(subject, new)
        await registry.delete(subject)
    prefixes = SchemaPrefixes(registry, lambda: 0)
    assert (await prefixes.find(1, 1)).data == b"\0\0\0\x40\1"
    assert await prefixes.find(2, 1) is None
    assert (await prefixes.find(3, 1)).data[5:] == b"\4\2\0"
    found = await prefixes.find_all([1 << 14 | 1])
    assert [each.schema_id for each in found.values()] == [1]


async def test_an_unknown_id_is_looked_up_again_after_a_time():
    now, asked = 0.0, []

    async def encoding(schema_id, version):
        asked.append((schema_id, version))
        return PayloadEncoding(SchemaType.AVRO, ()) if now else None

    prefixes = SchemaPrefixes(SimpleNamespace(encoding=encoding), lambda: now)
    assert await prefixes.find(1, 1) is None
    assert await prefixes.find(1, 1) is None
    assert len(asked) == 1
    now = UNKNOWN_S
    assert (await prefixes.find(1, 1)).schema_id == 1
    await prefixes.find(1, 1)
    assert len(asked) == 2


async def test_ids_after_an_unknown_one_are_not_looked_up(registry):
    prefixes = SchemaPrefixes(registry, lambda: 0)
    assert await prefixes.find_all([0, 1 << 14 | 1]) == {}
