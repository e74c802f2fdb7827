"""Groups belong to the principal of their first member."""

from __future__ import annotations

import asyncio

from pydanube.aio.tasks import task_scope
from pydanube_kafka.calls import waiting
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.coordinating import Groups
from pydanube_kafka.pure.groups import GroupError, JoinRequest


async def join(groups, owner, member_id=""):
    """Let a member of *owner* join; return its answer, if it need not wait."""
    request = JoinRequest(
        member_id=member_id,
        instance_id=None,
        session_timeout_s=60.0,
        rebalance_timeout_s=60.0,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    token = waiting()
    group = groups.get("g", owner)
    group.join(request, token, asyncio.get_running_loop().time())
    groups.settle("g")
    return token.result() if token.done() else None


async def test_who_was_only_given_an_id_does_not_own_the_group():
    async with task_scope() as tasks:
        groups = Groups(KafkaConfig(port=0), tasks)
        ids = {}
        for owner in ("mallory", "alice", "mallory"):
            answer = await join(groups, owner)
            assert answer.error is GroupError.MEMBER_ID_REQUIRED
            ids[owner] = answer.member_id
        await join(groups, "alice", ids["alice"])
        assert list(groups.find("g").members) == [ids["alice"]]
        await join(groups, "mallory")
        assert groups.owner_of("g") == "alice"
