"""Schemas for tests, and brokers with schemas."""

from __future__ import annotations

import json

from pydanube.model.schemas import SchemaPolicy, SchemaType, TopicSchema
from pydanube_broker.broker.publishing.schema_registry import NewSchema

ENFORCE = SchemaPolicy.ENFORCE
WARN = SchemaPolicy.WARN

AN_ORDER = b'{"id": 1}'
NO_ORDER = b'{"id": "one"}'


def order_schema(*required, **properties):
    """Return a JSON Schema of objects with an integer id and the named properties."""
    document = {
        "type": "object",
        "properties": {"id": {"type": "integer"}} | properties,
        "required": ["id", *required],
    }
    return json.dumps(document)


def new_schema(definition=None, type_=SchemaType.JSON_SCHEMA, **fields):
    """Return a schema to register; by default an order."""
    text = order_schema() if definition is None else definition
    return NewSchema(type=type_, definition=text, **fields)


async def registered(broker, subject="orders", versions=1):
    """Register versions of a subject, and return its schema id."""
    for number in range(versions):
        extra = {f"extra{n}": {"type": "string"} for n in range(number)}
        found, is_new = await broker.registry.register(
            subject, new_schema(order_schema(**extra))
        )
        assert is_new
    return found.schema_id


def strict(subject="orders", **fields):
    """Return a binding that refuses messages that do not match the subject."""
    return TopicSchema(subject=subject, policy=ENFORCE, **fields)
