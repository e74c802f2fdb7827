"""Payloads as text, by the schemas that the messages name."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydanube.cli.answers import printable
from pydanube.model.errors import BrokerError
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.wire.pb import schema_registry_pb2 as registry_pb

if TYPE_CHECKING:
    from pydanube.schemas.format import Decoder
    from pydanube.wire.pb import danube_api_pb2 as pb

Fetch = Callable[
    [registry_pb.GetSchemaRequest], Awaitable[registry_pb.GetSchemaResponse]
]
"""Asks the registry for one version; raises CallFailed."""


class PayloadTexts:
    """What payloads mean; each schema is fetched once."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._decoders: dict[tuple[int, int], Decoder | None] = {}

    async def of(self, message: pb.StreamMessage) -> str | None:
        """
        The payload as JSON, or as the text that it is.

        None if the message has no schema, or its payload is not of its schema, or it
        means only bytes; it is shown as it is then.
        """
        if not message.schema_id:
            return None
        decode = await self._decoder(message)
        if decode is None:
            return None
        try:
            [value] = decode([message.payload])
        except BrokerError:
            return None
        if isinstance(value, str):
            return printable(value)
        text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
        return "\n".join(map(printable, text.split("\n")))

    async def _decoder(self, message: pb.StreamMessage) -> Decoder | None:
        key = (message.schema_id, message.schema_version)
        if key not in self._decoders:
            self._decoders[key] = await self._find_decoder(*key)
        return self._decoders[key]

    async def _find_decoder(self, schema_id: int, version: int) -> Decoder | None:
        request = registry_pb.GetSchemaRequest(
            schema_id=schema_id, version=version or None
        )
        try:
            found = await self._fetch(request)
            type_ = SchemaType.parse(found.schema_type)
            if type_ is SchemaType.BYTES:
                return None
            return parse_schema(type_, found.schema_definition).decoder()
        except BrokerError:
            # There may be no such schema any more, or no registry.
            return None


def _plain(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
