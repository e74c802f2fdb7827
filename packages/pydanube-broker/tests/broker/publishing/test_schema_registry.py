"""The registry: ids and versions are never reused, and modes are enforced."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from pydanube.model.errors import (
    IncompatibleSchema,
    InvalidName,
    InvalidSchema,
    SchemaInUse,
    SchemaNotFound,
)
from pydanube.model.extras import EXTRAS, require
from pydanube.model.schemas import Compatibility, ReferencedVersion, SchemaType
from pydanube_broker.broker.publishing.schema_registry import (
    REFERENCES_MAX,
    NewSchema,
    SchemaRegistry,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.sqlite import open_sqlite
from support.fakes.memory_store import MemoryStore


def record(*fields, doc=""):
    """Return an Avro record of int fields; those in capitals have a default."""
    parts = [
        {"name": name, "type": "int"} | ({"default": 0} if name.isupper() else {})
        for name in fields
    ]
    text = json.dumps({"type": "record", "name": "R", "doc": doc, "fields": parts})
    return NewSchema(type=SchemaType.AVRO, definition=text)


def registry_of(store):
    return SchemaRegistry(store, lambda: 1_000_000)


@pytest.fixture
def registry():
    return registry_of(MemoryStore())


async def test_versions_count_from_one_and_share_the_subjects_id(registry):
    first, is_new = await registry.register("orders", record("a"))
    assert (first.schema_id, first.version, is_new) == (1, 1, True)
    second, is_new = await registry.register("orders", record("a", "B"))
    assert (second.schema_id, second.version, is_new) == (1, 2, True)
    other, _ = await registry.register("users", record("x"))
    assert (other.schema_id, other.version) == (2, 1)
    assert await registry.subjects() == ["orders", "users"]
    assert [each.version for each in await registry.versions("orders")] == [1, 2]
    assert await registry.version("orders") == second
    assert await registry.by_id(1, 1) == first
    assert await registry.by_id(1) == second


async def test_proto_source_is_refused_by_a_broker_without_the_compiler(
    registry, monkeypatch
):
    monkeypatch.setitem(EXTRAS, "protoc", ("no_such_compiler",))
    require.cache_clear()
    new = NewSchema(type=SchemaType.PROTOBUF, definition="message A {}")
    with pytest.raises(InvalidSchema, match=r"pip install 'pydanube\[protoc\]'; then"):
        await registry.register("orders", new)


async def test_equal_schema_is_registered_once(registry):
    await registry.register("orders", record("a"))
    await registry.register("orders", record("a", "B"))
    again, is_new = await registry.register("orders", record("a", doc="words"))
    assert (again.version, is_new) == (1, False)
    assert again.definition == record("a").definition


async def test_version_gets_the_references_that_it_lacks(registry):
    for _ in range(2):
        await registry.register("base", record("a"))
    await registry.register("base", record("a", "B"))
    one, two = (
        ReferencedVersion(name="R", subject="base", version=version)
        for version in (1, 2)
    )
    plain, _ = await registry.register("orders", record("x"))
    assert plain.references == ()
    new = replace(record("x"), references=[one])
    for references in ((one,), (one, two), (one, two)):
        new = replace(record("x"), references=[*references, one])
        found, is_new = await registry.register("orders", new)
        assert (found.references, is_new) == (references, False)
        assert await registry.version("orders") == found
    assert await registry.references_to(1, 2) == [found]
    unused = AsyncMock()
    with pytest.raises(SchemaInUse):
        await registry.delete("base", 2, check_unused=unused)
    many = [replace(one, name=f"R{number}") for number in range(REFERENCES_MAX)]
    with pytest.raises(InvalidSchema, match="at most 45 references"):
        await registry.register("orders", replace(new, references=many))
    missing = replace(one, version=3)
    with pytest.raises(SchemaNotFound):
        await registry.register("orders", replace(new, references=[missing]))
    assert await registry.version("orders") == found
    await registry.delete("orders", check_unused=unused)
    await registry.delete("base", 2, check_unused=unused)


async def test_references_that_two_brokers_add_together_are_all_kept(monkeypatch):
    store = MemoryStore()
    first, other = registry_of(store), registry_of(store)
    for subject in ("orders", "one", "two"):
        await first.register(subject, record("x"))
    one, two = (
        ReferencedVersion(name="R", subject=subject, version=1)
        for subject in ("one", "two")
    )
    changed, get = keys.schema_version(1, 1).path, store.get

    async def get_later(key):
        if key.path == changed:
            monkeypatch.setattr(store, "get", get)
            await other.register("orders", replace(record("x"), references=[two]))
        return await get(key)

    monkeypatch.setattr(store, "get", get_later)
    await first.register("orders", replace(record("x"), references=[one]))
    assert store.get == get
    found = await other.version("orders")
    assert set(found.references) == {one, two}


async def test_incompatible_schema_is_refused_with_path_and_rule(registry):
    await registry.register("orders", record("a"))
    with pytest.raises(IncompatibleSchema) as caught:
        await registry.register("orders", record("a", "b"))
    said = str(caught.value)
    assert "Schema is not compatible with subject 'orders' (mode: Backward)" in said
    assert "/fields/b" in said
    assert "reader_field_missing_default" in said
    assert (await registry.describe("orders")).versions == (1,)


async def test_the_mode_can_be_changed_and_tried(registry):
    await registry.register("orders", record("a"))
    candidate = record("a", "b")
    assert await registry.check("orders", candidate)
    assert not await registry.check("orders", candidate, Compatibility.FORWARD)
    await registry.set_compatibility("orders", Compatibility.FORWARD)
    assert (await registry.describe("orders")).compatibility is (Compatibility.FORWARD)
    version, _ = await registry.register("orders", candidate)
    assert version.version == 2


async def test_transitive_modes_look_at_every_version(registry):
    await registry.register("orders", record("a"))
    await registry.set_compatibility("orders", Compatibility.NONE)
    await registry.register("orders", record("a", "b"))
    await registry.set_compatibility("orders", Compatibility.BACKWARD_TRANSITIVE)
    with pytest.raises(IncompatibleSchema, match="version 1"):
        await registry.register("orders", record("a", "b", "C"))
    await registry.set_compatibility("orders", Compatibility.BACKWARD)
    await registry.register("orders", record("a", "b", "C"))


async def test_type_changes_only_with_mode_none(registry):
    await registry.register("orders", record("a"))
    text = NewSchema(type=SchemaType.STRING, definition="")
    with pytest.raises(IncompatibleSchema, match="Schema types must match"):
        await registry.register("orders", text)
    await registry.set_compatibility("orders", Compatibility.NONE)
    await registry.register("orders", text)
    assert [each.type for each in await registry.versions("orders")] == [
        SchemaType.AVRO,
        SchemaType.STRING,
    ]


async def test_ids_of_deleted_versions_and_subjects_are_not_reused(
    registry,
):
    await registry.register("orders", record("a"))
    await registry.register("orders", record("a", "B"))
    await registry.delete("orders", 2)
    assert (await registry.version("orders")).version == 1
    with pytest.raises(SchemaNotFound):
        await registry.by_id(1, 2)
    third, _ = await registry.register("orders", record("a", "B"))
    assert third.version == 3
    await registry.delete("orders")
    with pytest.raises(SchemaNotFound, match="Schema not found for ID: 1"):
        await registry.by_id(1)
    with pytest.raises(SchemaNotFound, match="Subject not found: orders"):
        await registry.versions("orders")
    fresh, _ = await registry.register("orders", record("z"))
    assert (fresh.schema_id, fresh.version) == (2, 1)


async def test_definitions_of_deleted_versions_may_stay_readable(registry):
    for fields in ("a", "aB", "aBC"):
        await registry.register("orders", record(*fields))
    await registry.delete("orders", 2, keep_readable=True)
    assert [each.version for each in await registry.versions("orders")] == [1, 3]
    assert await registry.readable_versions("orders") == [1, 2, 3]
    assert (await registry.by_id(1, 2)).version == 2
    with pytest.raises(SchemaNotFound):
        await registry.delete("orders", 2, keep_readable=True)
    await registry.delete("orders", keep_readable=True)
    assert (await registry.describe("orders")).versions == ()
    again, is_new = await registry.register("orders", record("a"))
    assert (again.version, is_new) == (4, True)
    await registry.delete("orders", 2)
    assert await registry.readable_versions("orders") == [1, 3, 4]
    await registry.delete("orders")
    for version in (1, 2, 4):
        with pytest.raises(SchemaNotFound):
            await registry.by_id(1, version)
        # Readers still know how messages were written.
        found = await registry.encoding(1, version)
        assert (found.type, found.message_path) == (SchemaType.AVRO, ())
    assert await registry.encoding(1, 5) is None


async def test_subject_without_versions_accepts_any_schema(registry):
    await registry.register("orders", record("a"))
    await registry.delete("orders", 1)
    with pytest.raises(SchemaNotFound):
        await registry.version("orders")
    assert (await registry.describe("orders")).versions == ()
    version, _ = await registry.register("orders", record("other"))
    assert version.version == 2


async def test_unknown_subjects_and_versions_are_not_found(registry):
    for asked in (
        registry.version("orders"),
        registry.describe("orders"),
        registry.check("orders", record("a")),
        registry.set_compatibility("orders", Compatibility.FULL),
        registry.delete("orders", 1),
        registry.delete("orders"),
    ):
        with pytest.raises(SchemaNotFound):
            await asked


async def test_bad_names_texts_and_definitions_are_refused_before_anything_changes(
    registry,
):
    with pytest.raises(InvalidName):
        await registry.register("a/b", record("a"))
    with pytest.raises(InvalidSchema, match="not JSON"):
        await registry.register(
            "orders", NewSchema(type=SchemaType.AVRO, definition=b"{")
        )
    with pytest.raises(InvalidSchema, match="longer"):
        await registry.register(
            "orders",
            NewSchema(type=SchemaType.STRING, definition="", description="x" * 20_000),
        )
    with pytest.raises(InvalidSchema, match="the maximum is"):
        await registry.register(
            "orders", NewSchema(type=SchemaType.AVRO, definition=b" " * 2**21)
        )
    assert await registry.subjects() == []


async def test_registered_schemas_survive_a_restart(tmp_path):
    path = tmp_path / "metadata"
    new = NewSchema(
        type=SchemaType.AVRO,
        definition=record("a").definition,
        description="what was ordered",
        created_by="me",
        tags=("x", "y"),
    )

    async def register():
        async with open_sqlite(path) as store:
            return (await registry_of(store).register("orders", new))[0]

    async def look():
        async with open_sqlite(path) as store:
            registry = registry_of(store)
            return await registry.version("orders"), await registry.describe("orders")

    registered = await register()
    found, description = await look()
    assert found == registered
    assert found.created_at == 1_000_000
    assert description.tags == ("x", "y")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_registries_on_one_store_never_reuse_an_id(tmp_path, seed):
    """
    Two registries register at once: other subjects, the same one, the same schema.
    """

    async def work(registry, number):
        done = []
        for step in range(8):
            name = f"f{number}x{(step * 7 + seed) % 8}"
            for subject, new in (
                ("shared", record(name)),
                (f"new-{number}-{step}", record("a")),
                ("shared", record("common")),
            ):
                done.append((await registry.register(subject, new))[0])
        return done

    async def together():
        async with open_sqlite(tmp_path / "metadata") as store:
            one, other = registry_of(store), registry_of(store)
            await one.register("shared", record("a"))
            await one.set_compatibility("shared", Compatibility.NONE)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(work(registry, number))
                    for number, registry in enumerate((one, other, one, other))
                ]
            found = [each for task in running for each in task.result()]
            assert await one.versions("shared") == await other.versions("shared")
            return found, await one.versions("shared")

    found, versions = await together()
    ids = {}
    for each in found:
        ids.setdefault(each.subject, set()).add(each.schema_id)
    assert all(len(each) == 1 for each in ids.values())
    assert len({next(iter(each)) for each in ids.values()}) == len(ids)
    shared = {(e.version, e.fingerprint) for e in found if e.subject == "shared"}
    assert len(shared) == len({version for version, _ in shared})
    assert len(shared) == len({fingerprint for _, fingerprint in shared})
    assert [each.version for each in versions] == list(range(1, len(versions) + 1))


def alternatives(least):
    """Return a schema with many alternatives, which takes very long to compare."""
    branches = [
        {"properties": {f"p{n}": {"minimum": n + least}}, "required": [f"p{n}"]}
        for n in range(300)
    ]
    text = json.dumps({"anyOf": branches})
    return NewSchema(type=SchemaType.JSON_SCHEMA, definition=text)


@pytest.mark.slow
async def test_slow_comparison_delays_only_its_subject(registry):
    await registry.register("slow", alternatives(0))
    await registry.register("orders", record("a"))
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(registry.register("slow", alternatives(1)))
        same = tasks.create_task(registry.register("slow", alternatives(0)))
        while not slow.done():
            await registry.register("orders", record("a"))
            await registry.register(f"new-{len(await registry.subjects())}", record())
            if len(await registry.subjects()) > 20:
                break
        # All of them were registered meanwhile.
        assert not slow.done()
        assert not same.done()
        slow.cancel()


async def test_parsed_schemas_in_memory_are_bounded_by_their_length(registry):
    versions = []
    for number in range(6):
        text = f'{{"title": "{number}", "description": "{"x" * 1_000_000}"}}'
        new = NewSchema(type=SchemaType.JSON_SCHEMA, definition=text)
        versions.append((await registry.register(f"s{number}", new))[0])
    parsed = [await registry.schema(each) for each in versions]
    assert await registry.schema(versions[-1]) is parsed[-1]
    assert await registry.schema(versions[0]) is not parsed[0]
