"""A client that sends single requests of Kafka's protocol, also wrong ones."""

from __future__ import annotations

import asyncio
import io
import struct
from contextlib import asynccontextmanager
from datetime import timedelta

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from pydanube_broker.testing import memory_broker
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import listen_kafka
from pydanube_kafka.server import open_kafka_server
from pydanube_kafka.wire.apis import Api
from pydanube_kafka.wire.record_batches import Records, encode_batch
from support.fakes.listener_parts import listener_parts

PRODUCE_VERSION = 9


def request_bytes(api, version, correlation_id=1, **fields):
    """A request, without its length."""
    schema = load_request_schema(api, version)
    header, out = schema.__header_schema__, io.BytesIO()
    known = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": "raw",
    }
    names = header.__dataclass_fields__
    entity_writer(header)(
        out, header(**{name: known[name] for name in known if name in names})
    )
    entity_writer(schema)(out, schema(**fields))
    return out.getvalue()


class KafkaRequests:
    """A connection, as a context manager."""

    def __init__(self, port):
        self.port = port
        self._correlation_id = 0

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self.port
        )
        return self

    async def __aexit__(self, *error):
        self._writer.close()

    def types(self, api, version):
        """The types of a request."""
        return load_payload_module(api, version, EntityType.request)

    async def ask(self, api, version, **fields):
        """Send a request and return the answer."""
        self._correlation_id += 1
        data = request_bytes(api, version, self._correlation_id, **fields)
        self._writer.write(struct.pack(">i", len(data)) + data)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(length)
        schema = load_response_schema(api, version)
        header, at = entity_reader(schema.__header_schema__)(answer, 0)
        assert header.correlation_id == self._correlation_id
        return entity_reader(schema)(answer, at)[0]

    async def authenticate(self, user, password):
        """Prove who the client is, by SASL."""
        await self.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        proof = f"\0{user}\0{password}".encode()
        answer = await self.ask(Api.SASL_AUTHENTICATE, 0, auth_bytes=proof)
        assert not answer.error_code, answer.error_message

    async def produce(self, topic, value, sequence=-1, *, producer_id=7, **changes):
        """Publish a record, and return the answer for its partition."""
        types = self.types(Api.PRODUCE, PRODUCE_VERSION)
        records = Records(timestamps=[1], keys=[None], values=[value], headers=[()])
        batch = encode_batch(
            records,
            [0],
            producer_id=producer_id if sequence >= 0 else -1,
            producer_epoch=0,
            base_sequence=sequence,
        )
        fields = {"transactional_id": None, "acks": -1, "timeout": timedelta(seconds=5)}
        data = types.PartitionProduceData(index=0, records=changes.pop("data", batch))
        answer = await self.ask(
            Api.PRODUCE,
            PRODUCE_VERSION,
            **(fields | changes),
            topic_data=(types.TopicProduceData(name=topic, partition_data=(data,)),),
        )
        return answer.responses[0].partition_responses[0]


@asynccontextmanager
async def kafka_broker():
    """A broker in memory, a native client, its Kafka server, and a connection to it."""
    async with (
        memory_broker() as memory,
        memory.connect() as client,
        open_kafka_server(
            KafkaConfig(port=0), listener_parts(memory.broker, "kafka")
        ) as server,
        listen_kafka(server, "127.0.0.1", 0) as port,
        KafkaRequests(port) as raw,
    ):
        yield memory, client, server, raw
