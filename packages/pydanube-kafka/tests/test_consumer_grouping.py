"""The coordinator divides the partitions of topics among members."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace

import pytest

import pydanube
from pydanube.model.errors import SessionLost
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube_broker.testing import memory_broker
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import listen_kafka
from pydanube_kafka.server import open_kafka_server
from pydanube_kafka.wire.apis import Api, ErrorCode
from support.drivers.kafka_requests import KafkaRequests
from support.fakes.listener_parts import listener_parts
from support.fakes.secured import bootstrap_key, secured

pytestmark = pytest.mark.slow

HEARTBEAT = Api.CONSUMER_GROUP_HEARTBEAT
FAST = {"group_heartbeat_interval_s": 0.1, "group_session_timeout_s": 600}
"""Looks for topics often, and removes nobody on a busy machine."""


@asynccontextmanager
async def serving(broker, **kafka):
    """Serve Kafka clients over *broker*; yields a connection."""
    async with (
        open_kafka_server(
            KafkaConfig(port=0, **kafka), listener_parts(broker, "kafka")
        ) as server,
        listen_kafka(server, "127.0.0.1", 0) as port,
        KafkaRequests(port) as raw,
    ):
        yield raw


@dataclass
class Member:
    """A member that has at once what it is told to have."""

    raw: KafkaRequests
    member_id: str
    epoch: int = 0
    assigned: dict | None = None

    async def beat(self, version=1, **changes):
        types = self.raw.types(HEARTBEAT, version)
        is_joining = self.epoch == 0
        fields = {
            "group_id": "g",
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": timedelta(seconds=30)
            if is_joining
            else timedelta(milliseconds=-1),
            "subscribed_topic_names": ("t",) if is_joining else None,
            "server_assignor": None,
            "topic_partitions": tuple(
                types.TopicPartitions(topic_id=each, partitions=tuple(numbers))
                for each, numbers in (self.assigned or {}).items()
            ),
        }
        if version:
            fields["subscribed_topic_regex"] = None
        answer = await self.raw.ask(HEARTBEAT, version, **(fields | changes))
        if answer.error_code is ErrorCode.none:
            self.epoch, self.member_id = answer.member_epoch, answer.member_id
            if answer.assignment is not None:
                self.assigned = {
                    each.topic_id: each.partitions
                    for each in answer.assignment.topic_partitions
                }
        return answer

    @property
    def numbers(self):
        return sorted(each for some in (self.assigned or {}).values() for each in some)

    async def commit(self, offset, epoch=None, version=9):
        types = self.raw.types(Api.OFFSET_COMMIT, version)
        partition = types.OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topic = types.OffsetCommitRequestTopic(name="t", partitions=(partition,))
        answer = await self.raw.ask(
            Api.OFFSET_COMMIT,
            version,
            group_id="g",
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            group_instance_id=None,
            topics=(topic,),
        )
        return answer.topics[0].partitions[0].error_code

    async def fetch(self, member_id, epoch):
        types = self.raw.types(Api.OFFSET_FETCH, 9)
        topic = types.OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
        group = types.OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=(topic,)
        )
        answer = await self.raw.ask(
            Api.OFFSET_FETCH, 9, groups=(group,), require_stable=True
        )
        (found,) = answer.groups
        return found.error_code or found.topics[0].partitions[0].committed_offset


async def beaten_until(is_done, *members, **changes):
    """Let members send heartbeats until *is_done*."""
    while not is_done():
        for each in members:
            answer = await each.beat(**changes)
            assert answer.error_code is ErrorCode.none, answer
        await asyncio.sleep(0.01)


async def test_members_share_partitions_as_members_and_topics_come_and_go():
    async with (
        memory_broker() as memory,
        serving(memory.broker, **FAST) as raw,
    ):
        topics = memory.broker.topics
        name = TopicName.parse("/default/t")
        await topics.create_partitioned(name, 2, TopicPolicy(), exist_ok=False)
        one, two = Member(raw, "one"), Member(raw, "two")
        await one.beat()
        assert one.numbers == [0, 1]
        await two.beat()
        assert two.numbers == []
        await beaten_until(lambda: len(one.numbers) == len(two.numbers) == 1, one, two)
        assert one.assigned.keys() == two.assigned.keys()

        described = await raw.ask(
            Api.CONSUMER_GROUP_DESCRIBE,
            1,
            group_ids=("g", "none") * 1000,
            include_authorized_operations=False,
        )
        # Each is in the answer once, which is so not longer than what there is.
        group, none = described.groups
        assert await members_seen(raw, times=1000) == ["one", "two"]
        assert none.error_code is ErrorCode.group_id_not_found
        assert (group.group_state, group.assignor_name) == ("Stable", "uniform")
        found = {
            each.member_id: each.assignment.topic_partitions for each in group.members
        }
        assert found["one"][0].topic_name == "t"
        assert found["one"][0].partitions == tuple(one.numbers)
        for types, expected in (((), ["consumer"]), (("classic",), [])):
            listed = await raw.ask(
                Api.LIST_GROUPS, 5, states_filter=("Stable",), types_filter=types
            )
            assert [each.group_type for each in listed.groups] == expected
        (found,) = await by_ids(raw, list(one.assigned))
        assert (found.name, len(found.partitions)) == ("t", 2)

        # A commit of a member needs its epoch.
        assert await one.commit(0) is ErrorCode.none
        assert await one.commit(0, one.epoch - 1) is ErrorCode.stale_member_epoch
        older = await one.commit(0, one.epoch - 1, version=8)
        assert older is ErrorCode.illegal_generation
        assert await one.fetch("one", one.epoch) == 0
        assert await one.fetch("one", 1) is ErrorCode.stale_member_epoch
        assert await one.fetch("three", 1) is ErrorCode.unknown_member_id

        await topics.add_partitions(name, 4)
        await beaten_until(lambda: len(one.numbers) == len(two.numbers) == 2, one, two)
        await two.beat(member_epoch=-1)
        await beaten_until(lambda: one.numbers == [0, 1, 2, 3], one)
        # The topic is another one now.
        (before,) = one.assigned
        await topics.delete(name)
        await beaten_until(lambda: not one.numbers, one)
        await topics.create(name, TopicPolicy())
        await beaten_until(lambda: one.numbers == [0], one)
        assert before not in one.assigned
        (gone,) = await by_ids(raw, [before])
        assert (gone.error_code, gone.name) == (ErrorCode.unknown_topic_id, None)


async def by_ids(raw, ids):
    """Ask for topics by their ids alone."""
    types = raw.types(Api.METADATA, 12)
    answer = await raw.ask(
        Api.METADATA,
        12,
        topics=tuple(
            types.MetadataRequestTopic(topic_id=each, name=None) for each in ids
        ),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return answer.topics


async def test_a_broker_whose_session_is_over_gives_up_its_groups(monkeypatch):
    def check_session():
        raise SessionLost("the session is over")

    async with memory_broker() as memory:
        parts = listener_parts(memory.broker, "kafka")
        async with (
            open_kafka_server(KafkaConfig(port=0), parts) as server,
            listen_kafka(server, "127.0.0.1", 0) as port,
            KafkaRequests(port) as raw,
        ):
            await Member(raw, "one").beat()
            assert server.groups.rooms("g")
            owners = SimpleNamespace(check_session=check_session)
            with monkeypatch.context() as patch:
                clustered = SimpleNamespace(shards=SimpleNamespace(owners=owners))
                patch.setattr(server.brokers, "_broker", clustered)
                while server.groups.rooms("g"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


MISTAKES = [
    ({"server_assignor": "mine"}, ErrorCode.unsupported_assignor),
    ({"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
    ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
    ({"subscribed_topic_names": ("x" * 70_000,)}, ErrorCode.invalid_request),
    ({"rebalance_timeout": timedelta(milliseconds=-1)}, ErrorCode.invalid_request),
    ({"member_epoch": -3}, ErrorCode.invalid_request),
    ({"member_epoch": -2}, ErrorCode.invalid_request),
    ({"member_epoch": 7}, ErrorCode.unknown_member_id),
    ({"instance_id": ""}, ErrorCode.invalid_request),
    ({"member_id": "x" * 300}, ErrorCode.invalid_request),
    ({"group_id": "a/b"}, ErrorCode.invalid_group_id),
]


async def test_what_members_may_not_ask_for_is_refused_with_a_reason():
    async with (
        memory_broker() as memory,
        serving(memory.broker, group_members_max=2) as raw,
    ):
        for changes, code in MISTAKES:
            answer = await Member(raw, "one").beat(**changes)
            assert answer.error_code is code, changes
            assert answer.error_message
        # An instance has one member, until that says that it comes back.
        one, again = Member(raw, "one"), Member(raw, "again")
        await one.beat(instance_id="i")
        refused = await again.beat(instance_id="i")
        assert refused.error_code is ErrorCode.unreleased_instance_id
        await one.beat(instance_id="i", member_epoch=-2)
        assert (await again.beat(instance_id="i")).error_code is ErrorCode.none
        fenced = await one.beat(instance_id="i", member_epoch=1)
        assert fenced.error_code is ErrorCode.fenced_instance_id
        fenced = await again.beat(instance_id="i", member_epoch=again.epoch + 1)
        assert fenced.error_code is ErrorCode.fenced_member_epoch
        # Older clients get their ids from the broker.
        old = Member(raw, "")
        await old.beat(version=0)
        assert old.member_id
        full = await Member(raw, "three").beat()
        assert full.error_code is ErrorCode.group_max_size_reached
        # The two protocols are not spoken at the same time, but after each other.
        refused = await raw.ask(Api.JOIN_GROUP, 5, **joining(raw))
        assert refused.error_code is ErrorCode.inconsistent_group_protocol
        for each in (again, old):
            await each.beat(member_epoch=-1, instance_id=None if each is old else "i")
        asked = await raw.ask(Api.JOIN_GROUP, 5, **joining(raw))
        assert asked.error_code is ErrorCode.member_id_required
        joined = await raw.ask(Api.JOIN_GROUP, 5, **joining(raw, asked.member_id))
        assert joined.error_code is ErrorCode.none
        refused = await Member(raw, "one").beat()
        assert refused.error_code is ErrorCode.group_id_not_found
        assert "classic" in refused.error_message


def joining(raw, member_id="", topics=()):
    """The fields of a member of the classic protocol that joins."""
    names = [struct.pack(f">h{len(each)}s", len(each), each) for each in topics]
    protocol = raw.types(Api.JOIN_GROUP, 5).JoinGroupRequestProtocol(
        name="range", metadata=struct.pack(">hi", 0, len(topics)) + b"".join(names)
    )
    return {
        "group_id": "g",
        "session_timeout": timedelta(seconds=600),
        "rebalance_timeout": timedelta(seconds=30),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (protocol,),
    }


@pytest.mark.e2e
async def test_members_have_only_topics_that_they_may_consume(tmp_path):
    async with (
        secured(tmp_path, kafka={"port": 0, **FAST}) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as admin,
    ):
        for name in ("t", "theirs"):
            await admin.topics.create(f"/default/{name}")
        made = await admin.security.create_api_key("bob")
        grant = "user:bob", ["consumer"]
        both = ["/default/t", "/default/later"]
        binding_id = await admin.security.add_binding(*grant, both)
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with KafkaRequests(port) as raw:
            await raw.authenticate("bob", made.key)
            bob = Member(raw, "bob")
            refused = await bob.beat(subscribed_topic_names=("t", "theirs"))
            assert refused.error_code is ErrorCode.topic_authorization_failed
            await bob.beat(subscribed_topic_names=(), subscribed_topic_regex=".*")
            (topic,) = await by_ids(raw, list(bob.assigned))
            assert topic.name == "t"
            await admin.topics.create("/default/later")
            await beaten_until(lambda: len(bob.assigned) == 2, bob)
            await admin.security.add_binding(*grant, ["/default/later"])
            await admin.security.remove_binding(binding_id)
            await beaten_until(lambda: len(bob.assigned) == 1, bob)
            (topic,) = await by_ids(raw, list(bob.assigned))
            assert topic.name == "later"


@pytest.mark.e2e
async def test_tenants_use_the_same_name_without_knowing(tmp_path):
    async with (
        secured(tmp_path, kafka={"port": 0, **FAST}) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as admin,
    ):
        keys = {"admin": bootstrap_key(tmp_path)}
        for name in ("carol", "bob"):
            made = await admin.security.create_api_key(name)
            keys[name] = made.key
            topics = [f"/default/{name}", "/default/t"]
            await admin.security.add_binding(f"user:{name}", ["consumer"], topics)
            await admin.topics.create(f"/default/{name}")
        await admin.topics.create("/default/t")
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with (
            KafkaRequests(port) as of_carol,
            KafkaRequests(port) as of_bob,
            KafkaRequests(port) as of_admin,
        ):
            raws = {"carol": of_carol, "bob": of_bob, "admin": of_admin}
            for name, raw in raws.items():
                await raw.authenticate(name, keys[name])
            members = {name: Member(raw, name) for name, raw in raws.items()}
            for name in ("carol", "bob"):
                own = {"subscribed_topic_names": (name,)}
                answer = await members[name].beat(**own)
                assert answer.error_code is ErrorCode.none
                assert members[name].numbers == [0]
                assert await members_seen(raws[name]) == [name]
            assert sorted(await members_seen(of_admin)) == ["bob", "carol"]
            # What one of them reads, nobody reads in another room.
            more = {"subscribed_topic_names": ("carol", "t")}
            assert not (await members["carol"].beat(**more)).error_code
            for number, changes in enumerate(
                ({"subscribed_topic_names": ("t",)}, {"subscribed_topic_names": ()})
            ):
                pattern = {"subscribed_topic_regex": "t"} if number else {}
                again = Member(of_bob, f"again-{number}")
                answer = await again.beat(**changes, **pattern)
                if number:
                    assert (answer.error_code, again.numbers) == (ErrorCode.none, [])
                else:
                    forbidden = ErrorCode.group_authorization_failed
                    assert answer.error_code is forbidden
            bob = members["bob"]
            tool = Member(of_bob, "", epoch=-1)
            assert await tool.commit(0) is ErrorCode.unknown_member_id
            # Nor does one of them leave for the other.
            left = await Member(of_bob, "carol", epoch=1).beat(member_epoch=-1)
            assert left.error_code is ErrorCode.unknown_member_id
            assert (await members["carol"].beat()).error_code is ErrorCode.none
            assert (await bob.beat()).error_code is ErrorCode.none


@pytest.mark.e2e
async def test_topics_that_members_may_not_consume_are_free_for_others(tmp_path):
    async with (
        secured(tmp_path, kafka={"port": 0, **FAST}) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as admin,
    ):
        keys = {"admin": bootstrap_key(tmp_path)}
        for name in ("mallory", "carol", "bob", "dave"):
            keys[name] = (await admin.security.create_api_key(name)).key

        async def bind(name, topic):
            return await admin.security.add_binding(
                f"user:{name}", ["consumer"], [f"/default/{topic}"]
            )

        for name in ("mallory", "bob"):
            await bind(name, name)
        binding_id = await bind("carol", "t")
        await bind("carol", "carol")
        await bind("dave", "other")
        for name in ("mallory", "carol", "bob", "t", "other"):
            await admin.topics.create(f"/default/{name}")
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with AsyncExitStack() as stack:
            raws = {
                name: await stack.enter_async_context(KafkaRequests(port))
                for name in keys
            }
            for name, raw in raws.items():
                await raw.authenticate(name, keys[name])
            # A client says that it reads the topic of somebody else.
            of_mallory = raws["mallory"]
            topics = b"bob", b"mallory"
            asked = await of_mallory.ask(
                Api.JOIN_GROUP, 5, **joining(of_mallory, "", topics)
            )
            squatter = asked.member_id
            answer = await of_mallory.ask(
                Api.JOIN_GROUP, 5, **joining(of_mallory, squatter, topics)
            )
            assert not answer.error_code
            bob = Member(raws["bob"], "bob")
            own = {"subscribed_topic_names": ("bob",)}
            assert (await bob.beat(**own)).error_code is ErrorCode.none
            assert bob.numbers == [0]
            # The ids of others are no credentials.
            beat = {
                "group_id": "g",
                "generation_id": answer.generation_id,
                "group_instance_id": None,
            }
            for name, code in (
                ("bob", ErrorCode.unknown_member_id),
                ("mallory", ErrorCode.none),
            ):
                answer = await raws[name].ask(
                    Api.HEARTBEAT, 3, member_id=squatter, **beat
                )
                assert answer.error_code is code
            # Clients choose ids themselves, and may choose the same.
            carol, same = Member(raws["carol"], "x"), Member(raws["bob"], "x")
            assert not (await carol.beat()).error_code
            # Nor does an error say that others read a topic.
            denied = await Member(raws["dave"], "", epoch=-1).commit(0)
            assert denied is ErrorCode.topic_authorization_failed
            assert not (await same.beat(**own)).error_code
            assert sorted(await members_seen(raws["bob"])) == ["bob", "x"]
            # One that may read everything does not join others without need.
            boss = Member(raws["admin"], "boss")
            await boss.beat(subscribed_topic_names=("other",))
            assert await members_seen(raws["carol"]) == ["x"]
            described = await raws["admin"].ask(
                Api.CONSUMER_GROUP_DESCRIBE,
                1,
                group_ids=("g",),
                include_authorized_operations=False,
            )
            (group,) = described.groups
            found = sorted(each.member_id for each in group.members)
            assert found == ["bob", "boss", "x", "x"]
            # A topic is free when those that read it may not any more.
            await bind("bob", "t")
            both = {"subscribed_topic_names": ("bob", "t")}
            forbidden = ErrorCode.group_authorization_failed
            assert (await bob.beat(**both)).error_code is forbidden
            await admin.security.remove_binding(binding_id)
            await beaten_until(lambda: not carol.numbers, carol)
            assert (await bob.beat(**both)).error_code is ErrorCode.none


async def members_seen(raw, times=1):
    """The members that one answer describes if it names the group so often."""
    answer = await raw.ask(
        Api.DESCRIBE_GROUPS,
        5,
        groups=("g",) * times,
        include_authorized_operations=False,
    )
    (group,) = answer.groups
    return [each.member_id for each in group.members]
