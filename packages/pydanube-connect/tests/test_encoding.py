"""Tests of the encoding of drafts by the schema of a topic."""

import asyncio
import weakref

import msgspec

from pydanube.client.operations.schemas import Schemas
from pydanube.model.schemas import SchemaType
from pydanube_connect.encoding import RegisteredSchemas, TopicEncoder, open_encoder
from pydanube_connect.pure.mapping import Draft
from pydanube_connect.pure.records import RecordSchema
from pydanube_connect.pure.spec import ValueSchema
from support.worlds.current import memory_broker

TOPIC = "/default/orders"
SCHEMA = """{"type": "object", "required": ["id"],
"properties": {"id": {"type": "integer"}}}"""


def draft(value, **fields):
    found = {"key": None, "attributes": {}, "id": None} | fields
    return Draft(TOPIC, value, **found)


def numbered(drafts):
    return [
        msgspec.structs.replace(each, number=number)
        for number, each in enumerate(drafts)
    ]


def test_older_versions_are_registered_once(monkeypatch):
    texts = [
        f'{{"properties": {{"f{number}": {{"type": "string"}}}}}}'
        for number in range(4)
    ]
    register, registered = Schemas.register, []

    async def counted(schemas, subject, schema):
        registered.append(texts.index(schema.definition))
        return await register(schemas, subject, schema)

    async def versions():
        found = []
        async with memory_broker() as broker, broker.connect() as client:
            await client.topics.create(TOPIC)
            monkeypatch.setattr(Schemas, "register", counted)
            schemas = RegisteredSchemas(client)
            for count in range(1, len(texts) + 1):
                schema = RecordSchema(SchemaType.JSON_SCHEMA, tuple(texts[:count]))
                found.append(await schemas.reference(TOPIC, schema))
                assert await schemas.reference(TOPIC, schema) is found[-1]
                # What the source forgets, with its long definitions, is forgotten.
                alive = weakref.ref(schema)
                del schema
                assert alive() is None
        return [each.version for each in found]

    assert asyncio.run(versions()) == [1, 2, 3, 4]
    assert registered == [0, 1, 2, 3]


def test_messages_with_and_without_ids_are_apart():
    drafts = [draft(b"1"), draft(b"2", id="a", key=b"k"), draft(b"3", id="b")]
    groups, refused = TopicEncoder(None, None).encode(numbered(drafts))
    assert refused == {}
    assert [each.ids for each in groups] == [None, ["a", "b"]]
    assert [each.numbers for each in groups] == [[0], [1, 2]]
    assert groups[1].batch.to_pydict() == {
        "key": [b"k", None],
        "payload": [b"2", b"3"],
        "attributes": [None, None],
    }


def test_values_that_do_not_conform_are_refused_alone(tmp_path):
    (tmp_path / "order.json").write_text(SCHEMA)

    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            declared = ValueSchema(type="json_schema", file="order.json")
            encoder = await open_encoder(client, TOPIC, declared, tmp_path)
            values = [{"id": 1}, {"id": "x"}, {"id": 2}]
            drafts = [draft(each) for each in values]
            [group], refused = encoder.encode(numbered(drafts))
            assert list(refused) == [1]
            assert group.numbers == [0, 2]
            assert group.batch.column("payload").to_pylist() == [
                b'{"id":1}',
                b'{"id":2}',
            ]
            latest = await client.schemas.latest("default-orders")
            assert group.schema.subject == "default-orders"
            assert group.schema.version == latest.version
            # Without a file, it is the schema that the topic has.
            again = await open_encoder(client, TOPIC, ValueSchema(), tmp_path)
            assert again.schema == encoder.schema

    asyncio.run(run())
