"""Members of a group that know of each other are in a room; principals have shares."""

from __future__ import annotations

import asyncio

from pydanube.aio.tasks import task_scope
from pydanube_kafka.calls import waiting
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.coordinating import MEMBERS_MAX, Groups
from pydanube_kafka.pure.consumer_groups import Beat
from pydanube_kafka.pure.groups import Claim, GroupError, JoinRequest


async def join(groups, room, member_id=""):
    """Let a member join; return its answer, if it need not wait."""
    token = waiting()
    request = request_of(member_id)
    room.group.join(request, token, asyncio.get_running_loop().time())
    groups.settle(room)
    return token.result() if token.done() else None


def request_of(member_id=""):
    return JoinRequest(
        member_id=member_id,
        instance_id=None,
        session_timeout_s=60.0,
        rebalance_timeout_s=60.0,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )


async def test_who_was_only_given_an_id_is_in_a_room_of_its_own():
    async with task_scope() as tasks:
        groups = Groups(KafkaConfig(port=0), tasks)
        rooms = {
            owner: groups.add("g", owner, is_classic=True)
            for owner in ("mallory", "alice")
        }
        answers = {owner: await join(groups, room) for owner, room in rooms.items()}
        assert all(
            each.error is GroupError.MEMBER_ID_REQUIRED for each in answers.values()
        )
        alice = answers["alice"].member_id
        knowing = [each for each in rooms.values() if each.group.knows(alice)]
        assert knowing == [rooms["alice"]]
        await join(groups, rooms["alice"], alice)
        assert list(rooms["alice"].group.members) == [alice]
        assert not rooms["mallory"].group.members
        # A room is gone with its last member.
        rooms["alice"].group.leave(alice, None, 0.0)
        groups.settle(rooms["alice"])
        assert groups.find("g", "alice") is None
        assert groups.rooms("g") == [rooms["mallory"]]


async def test_a_principal_cannot_take_the_groups_of_others():
    async with task_scope() as tasks:
        groups = Groups(KafkaConfig(port=0, groups_max=8), tasks, shares=4)
        for name in ("a", "b"):
            assert groups.add(name, "mallory", is_classic=True) is not GroupError.FULL
        assert groups.add("c", "mallory", is_classic=True) is GroupError.FULL
        room = groups.add("c", "alice", is_classic=True)
        # One that ends makes room for another one.
        groups.settle(room)
        groups.settle(groups.find("a", "mallory"))
        assert groups.add("c", "mallory", is_classic=True) is not GroupError.FULL


async def test_members_that_are_only_expected_count():
    async with task_scope() as tasks:
        groups = Groups(KafkaConfig(port=0), tasks)
        room = groups.add("g", "", is_classic=True)
        room.group.members_max = MEMBERS_MAX
        now = asyncio.get_running_loop().time()
        for _ in range(MEMBERS_MAX):
            room.group.join(request_of(), waiting(), now)
        groups.settle(room)
        assert groups.is_full("")
        room.group.close()
        groups.settle(room)
        assert not groups.is_full("")


async def test_an_epoch_of_another_coordinator_is_stale():
    async with task_scope() as tasks:
        epochs, beat = [], Beat(member_id="m", epoch=0, rebalance_timeout_s=60.0)
        for _ in range(2):
            groups = Groups(KafkaConfig(port=0), tasks)
            room = groups.add("g", "", is_classic=False)
            epochs.append(room.group.heartbeat(beat, 0.0).epoch)
            groups.settle(room)
            assert groups.counts()["consumer"].rebalances == 1
        late = Claim(member_id="m", generation=epochs[0])
        assert room.group.check_commit(late) is GroupError.STALE_EPOCH
        room.group.close()
        groups.settle(room)
