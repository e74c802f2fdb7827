"""
The schemas that rules name, and the validation of payloads by them.

A schema is looked up when a message needs it, and again after each change of a subject:
a new version counts for the next message, and a deleted one for none.  The listener is
not for clusters, so this broker makes all changes.
"""

from __future__ import annotations

import asyncio

from pydanube.model.errors import InvalidPayload
from pydanube.model.schemas import SchemaReference
from pydanube.schemas.parsed_schema import Validator
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.schema_validation import INLINE_BYTES_MAX
from pydanube_mqtt.pure.rules import Rule


class RuleSchema:
    """The schema of one rule."""

    def __init__(self, broker: Broker, rule: Rule) -> None:
        assert rule.schema
        self._broker = broker
        self._rule = rule
        self._lock = asyncio.Lock()
        self._validator: Validator | None = None
        self._found_at = -1
        """The number of changes of subjects when the schema was looked up."""
        self.schema_id = 0
        self.version = 0

    def is_ready(self, payload: bytes) -> bool:
        """Return whether *payload* can be validated at once."""
        validator = self._validator
        return (
            validator is not None
            and self.is_fresh
            and len(payload) <= min(INLINE_BYTES_MAX, validator.quick_bytes_max)
        )

    async def check_later(self, payload: bytes) -> None:
        """
        Look the schema up if necessary, and raise if *payload* does not match it.

        Raises:
            InvalidPayload: It does not match.
            SchemaNotFound: There is no such subject or version.
            OtherSchema: The topic is bound to another schema.
        """
        await self.look_up()
        if self.is_ready(payload):
            self.check(payload)
            return
        async with self._broker.schemas.backlog.worker_slots:
            await asyncio.to_thread(self.check, payload)

    def check(self, payload: bytes) -> None:
        """
        Raise if *payload* does not match the schema, which is known.

        Raises:
            InvalidPayload: It does not match.
        """
        assert self._validator is not None
        for _, reason in self._validator([payload]):
            raise InvalidPayload(
                f"the payload does not match version {self.version} of the schema "
                f"{self._rule.schema}: {reason}"
            )

    @property
    def is_fresh(self) -> bool:
        """Whether no subject has changed since the schema was looked up."""
        return self._found_at == self._broker.registry.change_count

    async def look_up(self) -> None:
        """
        Look the schema up, unless no subject has changed since the last time.

        Raises:
            SchemaNotFound: There is no such subject or version.
            OtherSchema: The topic is bound to another schema.
        """
        async with self._lock:
            if not self.is_fresh:
                await self._find()

    async def _find(self) -> None:
        broker, rule = self._broker, self._rule
        change_count = broker.registry.change_count
        reference = SchemaReference(
            subject=rule.schema, version=rule.schema_version or None
        )
        # As for other producers, a topic without a schema is bound to this one.
        topic = await broker.topics.get(rule.target)
        found = await broker.schemas.assign(topic, reference)
        if (found.schema_id, found.version) != (self.schema_id, self.version):
            registered = await broker.registry.version(rule.schema, found.version)
            parsed = await broker.registry.schema(registered)
            self._validator = await asyncio.to_thread(parsed.validator)
            self.schema_id, self.version = found.schema_id, found.version
        self._found_at = change_count
