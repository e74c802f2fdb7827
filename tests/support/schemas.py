"""Schemas for tests, and brokers that have some."""

from __future__ import annotations

import json

from pydanube.model.schemas import SchemaPolicy, SchemaType, TopicSchema
from pydanube.schemas.registry import NewSchema

ENFORCE = SchemaPolicy.ENFORCE
WARN = SchemaPolicy.WARN

AN_ORDER = b'{"id": 1}'
NO_ORDER = b'{"id": "one"}'


def order_schema(*required, **properties):
    """A JSON Schema of objects with an integer id, and what else is named."""
    document = {
        "type": "object",
        "properties": {"id": {"type": "integer"}} | properties,
        "required": ["id", *required],
    }
    return json.dumps(document)


def new_schema(definition=None, type_=SchemaType.JSON_SCHEMA, **fields):
    """What somebody wants to register; by default an order."""
    text = order_schema() if definition is None else definition
    return NewSchema(type=type_, definition=text, **fields)


async def registered(broker, subject="orders", versions=1):
    """So many versions of a subject; its schema id."""
    for number in range(versions):
        extra = {f"extra{n}": {"type": "string"} for n in range(number)}
        found, is_new = await broker.registry.register(
            subject, new_schema(order_schema(**extra))
        )
        assert is_new
    return found.schema_id


def strict(subject="orders", **fields):
    """A topic's schema that refuses whatever does not keep to it."""
    return TopicSchema(subject=subject, policy=ENFORCE, **fields)
