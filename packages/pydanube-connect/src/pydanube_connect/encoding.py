"""The encoding of drafts as message batches, by the schema of each topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress, groupby
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pydanube.client.client import Client
from pydanube.client.messages.schema import Schema, schema_of
from pydanube.client.producers.typed_producer import default_subject
from pydanube.model.arrow import pa
from pydanube.model.batch import batch_of
from pydanube.model.errors import IncompatibleSchema, InvalidPayload, SchemaNotFound
from pydanube.model.schemas import SchemaReference, SchemaType
from pydanube.schemas.language import Encoder, error_text, reason_of
from pydanube_connect.pure.mapping import UNUSABLE, Draft
from pydanube_connect.pure.records import RecordSchema
from pydanube_connect.pure.spec import ValueSchema

REGISTERED_MAX = 20_000
"""How many schemas of records, and versions of them, are remembered as registered."""


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Encoded messages for one topic, in their order."""

    topic: str
    batch: pa.RecordBatch
    ids: Sequence[str] | None
    """The id of each message, if they have any."""
    schema: SchemaReference | None
    numbers: Sequence[int] = ()
    """The numbers of the records that the messages were made of."""


class TopicEncoder:
    """Encodes the values for one topic."""

    def __init__(self, encode: Encoder | None, schema: SchemaReference | None) -> None:
        self.schema = schema
        self._encode = encode

    def encode(
        self,
        drafts: Sequence[Draft],
        references: Mapping[RecordSchema, SchemaReference] | None = None,
    ) -> tuple[list[MessageGroup], dict[int, str]]:
        """
        Return the messages of *drafts*, and what is invalid.

        Messages with and without an id, and with different schemas, are in different
        groups.  *references* has what the schemas of drafts are registered as.

        Values that do not conform to the schema are left out, with all others of their
        number, and returned with the reason by this number.
        """
        payloads, refused = self._payloads(drafts)
        if refused:
            is_valid = [each.number not in refused for each in drafts]
            payloads = list(compress(payloads, is_valid))
            drafts = list(compress(drafts, is_valid))
        groups = []
        base = 0
        for (_, schema), each in groupby(
            [(draft.id is None, draft.schema) for draft in drafts]
        ):
            end = base + len(list(each))
            reference = self.schema
            if schema is not None and references is not None:
                reference = references[schema]
            groups.append(self._group(drafts[base:end], payloads[base:end], reference))
            base = end
        return groups, refused

    def _group(
        self,
        drafts: Sequence[Draft],
        payloads: Sequence[bytes],
        schema: SchemaReference | None,
    ) -> MessageGroup:
        batch = batch_of(
            payloads,
            keys=[each.key for each in drafts],
            attributes=[each.attributes or None for each in drafts],
        )
        ids = [each.id for each in drafts if each.id is not None]
        numbers = [each.number for each in drafts]
        return MessageGroup(drafts[0].topic, batch, ids or None, schema, numbers)

    def _payloads(self, drafts: Sequence[Draft]) -> tuple[list[bytes], dict[int, str]]:
        """Return the payload of each draft, empty if it is invalid, and the reasons."""
        values = [each.value for each in drafts]
        if self._encode is None:
            return values, {}
        try:
            return self._encode(values), {}
        except (InvalidPayload, *UNUSABLE):
            # At least one is invalid: find out which.
            pass
        payloads: list[bytes] = []
        refused = {}
        for each in drafts:
            try:
                payloads += self._encode([each.value])
            except InvalidPayload as error:
                payloads.append(b"")
                refused[each.number] = reason_of(error)
            except UNUSABLE as error:
                payloads.append(b"")
                refused[each.number] = error_text(error)
        return payloads, refused


async def open_encoder(
    client: Client, topic: str, declared: ValueSchema | None, directory: Path
) -> TopicEncoder:
    """
    Return the encoder for *topic*; register the schema that is *declared* in a file.

    Raises:
        SchemaNotFound: The topic should have a schema, and has none.
        IncompatibleSchema, InvalidSchema: The schema cannot be registered.
    """
    if declared is None:
        return TopicEncoder(None, None)
    subject = await default_subject(client.schemas, topic)
    schema = await _schema_in(declared, directory)
    if schema is None:
        version = await client.schemas.latest(subject)
    else:
        version = await client.schemas.register(subject, schema)
    encode = await asyncio.to_thread(_encoder_of, schema_of(version))
    reference = SchemaReference(subject=version.subject, version=version.version)
    return TopicEncoder(encode, reference)


class RegisteredSchemas:
    """
    Registers the schemas of records, and knows which were registered as what.

    Bounds: it remembers ``REGISTERED_MAX`` schemas and versions, with those of one
    more schema, and keeps none of their definitions.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._references: WeakKeyDictionary[
            RecordSchema, dict[str, SchemaReference]
        ] = WeakKeyDictionary()
        self._versions: set[int] = set()
        """Hashes of topics and the definitions that are registered for them."""

    def forget(self) -> None:
        """Forget all schemas, so that those that are needed are registered again."""
        self._references.clear()
        self._versions.clear()

    async def reference(self, topic: str, schema: RecordSchema) -> SchemaReference:
        """
        Return what *schema* is registered as for *topic*.

        It and its older versions are registered first, as far as they are missing.

        Raises:
            IncompatibleSchema, InvalidSchema: One of them cannot be registered.
        """
        known = self._references.get(schema, {}).get(topic)
        if known is None:
            if len(self._references) + len(self._versions) >= REGISTERED_MAX:
                self.forget()
            known = await self._register(topic, schema)
            self._references.setdefault(schema, {})[topic] = known
        return known

    async def _register(self, topic: str, schema: RecordSchema) -> SchemaReference:
        schemas = self._client.schemas
        subject = await default_subject(schemas, topic)
        *older, own = [Schema[Any](schema.type, each) for each in schema.definitions]
        for each in older:
            version = hash((topic, schema.type, each.definition))
            if version not in self._versions:
                await schemas.register(subject, each)
                self._versions.add(version)
        registered = await schemas.register(subject, own)
        self._versions.add(hash((topic, schema.type, own.definition)))
        return SchemaReference(subject=subject, version=registered.version)


async def open_trial_encoder(
    client: Client, topic: str, declared: ValueSchema | None, directory: Path
) -> TopicEncoder:
    """
    Return an encoder such as ``open_encoder`` does, without registering a schema.

    Raises:
        SchemaNotFound: The topic should have a schema, and has none.
        IncompatibleSchema, InvalidSchema: The schema could not be registered.
    """
    schema = None if declared is None else await _schema_in(declared, directory)
    if schema is None:
        return await open_encoder(client, topic, declared, directory)
    subject = await default_subject(client.schemas, topic)
    with suppress(SchemaNotFound):
        violations = await client.schemas.check(subject, schema)
        if violations:
            raise IncompatibleSchema(f"{subject}: {violations[0]}")
    return TopicEncoder(await asyncio.to_thread(_encoder_of, schema), None)


async def _schema_in(declared: ValueSchema, directory: Path) -> Schema[object] | None:
    """Return the schema in the file that is declared, if there is one."""
    if declared.file is None or declared.type is None:
        return None
    text = await asyncio.to_thread((directory / declared.file).read_text, "utf-8")
    return Schema(SchemaType.parse(declared.type), text, declared.message)


def _encoder_of(schema: Schema[object]) -> Encoder:
    """Return the encoder of values, which are those of JSON; it may take a while."""
    from pydanube.schemas.value_codecs import json_value_encoder  # noqa: PLC0415  # As needed.

    return json_value_encoder(schema.parse())
