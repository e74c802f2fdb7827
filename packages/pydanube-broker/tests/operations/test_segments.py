"""Operations on segments."""

from __future__ import annotations

from pydanube.model.names import TopicName
from pydanube.objects.memory import MemoryObjects
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import Caller, authorized
from pydanube_broker.operations.handlers import Call
from pydanube_broker.operations.segments import find_segments, list_segments
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.principals import ROOT

ALICE = Principal("alice", "token")


def world_with(options):
    """Return a world whose segments are in a remote store with these options."""
    return BrokerWorld(
        objects=TieredObjects(MemoryObjects(), MemoryObjects()),
        remote=RemoteConfig(url="s3://bucket/history", options=options),
    )


async def test_segments_are_listed_without_credentials_and_files_of_the_broker():
    options = {
        "region": "eu-central-1",
        "endpoint": "http://minio.internal:9000",
        "access_key_id": "AKIA",
        "secret_access_key_file": "/run/secrets/key",
        "credential_path": "/etc/danube/key.json",
    }
    world = world_with(options)
    async with world.broker() as broker:
        await broker.topics.create(A_TOPIC, RELIABLE)
        request = pb.ListSegments(topic=str(A_TOPIC))
        call = Call(broker, ANONYMOUS, Authenticator(SecurityConfig()))
        answer = await list_segments(call, request)
    assert answer.store_options == {
        "region": "eu-central-1",
        "endpoint": "http://minio.internal:9000",
    }


async def test_segments_and_their_store_are_hidden_from_those_who_only_describe():
    world = world_with({"region": "eu-central-1"})
    async with world.broker(is_superuser=ROOT.__eq__) as broker:
        await broker.topics.create(A_TOPIC, RELIABLE)

        async def ask(principal, topic=A_TOPIC):
            request = pb.FindSegments(ranges=[pb.SegmentRange(topic=str(topic))])
            call = Call(broker, principal, Authenticator(SecurityConfig()))
            caller = Caller(broker, principal, "192.0.2.1:1", "stream")
            async with authorized(caller, Kind.FIND_SEGMENTS, request):
                return await find_segments(call, request)

        await broker.access.set_role(ROOT, Role("r", frozenset({Permission.DESCRIBE})))
        await broker.access.add_binding(
            ROOT, Binding("user:alice", ("r",), ("/*",), "b")
        )
        seen = await ask(ROOT)
        assert [each.topic for each in seen.topics] == [str(A_TOPIC)]
        assert seen.store_options == {"region": "eu-central-1"}
        missing = await ask(ALICE, TopicName.parse("/default/missing"))
        assert await ask(ALICE) == missing == pb.SegmentsFound()
