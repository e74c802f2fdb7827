"""Operations on segments."""

from __future__ import annotations

from pydanube.objects.memory import MemoryObjects
from pydanube.operations.handlers import Call
from pydanube.operations.segments import list_segments
from pydanube.security.principals import ANONYMOUS
from pydanube.servers.authentication import Authenticator
from pydanube.servers.security_config import SecurityConfig
from pydanube.storage.config import RemoteConfig
from pydanube.storage.tiered_objects import TieredObjects
from pydanube.wire.pb import stream_pb2 as pb
from support.brokers import A_TOPIC, RELIABLE, BrokerWorld


async def test_segments_are_listed_without_credentials_and_files_of_the_broker():
    options = {
        "region": "eu-central-1",
        "endpoint": "http://minio.internal:9000",
        "access_key_id": "AKIA",
        "secret_access_key_file": "/run/secrets/key",
        "credential_path": "/etc/danube/key.json",
    }
    world = BrokerWorld(
        objects=TieredObjects(MemoryObjects(), MemoryObjects()),
        remote=RemoteConfig(url="s3://bucket/history", options=options),
    )
    async with world.broker() as broker:
        await broker.topics.create(A_TOPIC, RELIABLE)
        request = pb.ListSegments(topic=str(A_TOPIC))
        call = Call(broker, ANONYMOUS, Authenticator(SecurityConfig()))
        answer = await list_segments(call, request)
    assert answer.store_options == {
        "region": "eu-central-1",
        "endpoint": "http://minio.internal:9000",
    }
