"""The binding of a topic to a schema, as text."""

from __future__ import annotations

from pydanube.model.schemas import TopicSchema


def describe_binding(schema: TopicSchema | None) -> str:
    """Return the binding of a topic as text."""
    if schema is None:
        return "no schema"
    text = f"{schema.subject} ({schema.policy.value}"
    if schema.validates_payload:
        text += ", payloads are validated"
    if schema.version is not None:
        text += f", only version {schema.version}"
    if schema.version_min is not None:
        text += f", version {schema.version_min} or later"
    return text + ")"
