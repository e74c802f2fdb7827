"""Administrators see all connections, but only those topics that they may see."""

import pytest

import pydanube
from pydanube.model.connections import MEMBERS_MAX
from pydanube.security.principals import Principal
from support.fakes.principals import ROOT, client_of, guarded_broker

ALICE, OPERATOR = Principal("alice", "token"), Principal("ops", "token")
TOPIC = "/default/secret"


@pytest.fixture
async def guarded():
    async with guarded_broker() as guarded, client_of(guarded, ROOT) as root:
        await root.topics.create(TOPIC)
        await root.security.set_role("ops", ["cluster_admin"])
        await root.security.add_binding("user:ops", ["ops"], ["cluster"])
        yield guarded


async def test_members_and_counts_are_listed(guarded):
    async with client_of(guarded, ROOT) as root:
        async with (
            root.producer(TOPIC, name="p") as producer,
            root.consumer(TOPIC, subscription="s", name="c") as consumer,
        ):
            await producer.send_batch([b"1", b"2"])
            await consumer.receive(timeout_s=30)
            found = await root.cluster.list_connections()
        [mine] = [each for each in found.connections if each.members]
    assert {(each.name, each.subscription) for each in mine.members} == {
        ("p", ""),
        ("c", "s"),
    }
    assert (mine.listener, mine.principal) == ("stream", "root")
    assert mine.client.startswith("pydanube")
    assert (mine.received_messages, mine.sent_messages) == (2, 2)
    assert mine.member_count == 2


async def test_further_members_are_counted(guarded):
    async with client_of(guarded, ROOT) as root:
        topic = "/default/parts"
        await root.topics.create(topic, partitions=MEMBERS_MAX + 1)
        async with root.consumer(topic, subscription="s"):
            found = await root.cluster.list_connections()
    [mine] = [each for each in found.connections if each.members]
    assert (len(mine.members), mine.member_count) == (MEMBERS_MAX, MEMBERS_MAX + 1)


async def test_topics_that_the_caller_may_not_see_are_left_out(guarded):
    async with (
        client_of(guarded, ROOT) as root,
        client_of(guarded, OPERATOR) as operator,
        root.producer(TOPIC),
    ):
        found = await operator.cluster.list_connections()
    assert {each.principal for each in found.connections} == {"root", "ops"}
    assert [each.members for each in found.connections if each.member_count] == []


async def test_others_neither_list_nor_close_connections(guarded):
    async with client_of(guarded, ALICE) as alice, client_of(guarded, ROOT) as root:
        with pytest.raises(pydanube.PermissionDenied):
            await alice.cluster.list_connections()
        found = await root.cluster.list_connections()
        with pytest.raises(pydanube.PermissionDenied):
            await alice.cluster.close_connection(found.connections[0].connection_id)


async def test_lists_are_read_in_pages(guarded):
    async with client_of(guarded, ROOT) as root, client_of(guarded, ALICE):
        found = await root.cluster.list_connections(limit=1)
        whole = await root.cluster.list_connections()
    assert found.connections == whole.connections[:1]
    assert found.connection_count == len(whole.connections) > 1


async def test_client_connects_again_after_its_connection_was_closed(guarded):
    async with client_of(guarded, ROOT) as root, client_of(guarded, OPERATOR) as closed:
        await closed.security.who_am_i()
        found = (await root.cluster.list_connections()).connections
        [number] = [each.connection_id for each in found if each.principal == "ops"]
        with pytest.raises(pydanube.InvalidRequest, match="at most 200"):
            await root.cluster.close_connection(number, reason="x" * 201)
        await root.cluster.close_connection(number, reason="new limits")
        assert (await closed.security.who_am_i()).name == "ops"
        found = (await root.cluster.list_connections()).connections
        assert number not in [each.connection_id for each in found]


async def test_limits_are_positive(guarded):
    async with client_of(guarded, ROOT) as root:
        with pytest.raises(pydanube.InvalidRequest, match="1 or more"):
            await root.cluster.list_connections(limit=0)
