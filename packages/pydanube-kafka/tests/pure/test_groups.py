"""Groups divide their work again when members come, go, and are silent."""

from __future__ import annotations

from itertools import count

import pytest

from pydanube_kafka.pure.groups import (
    INITIAL_DELAY_S,
    Claim,
    Group,
    GroupError,
    GroupState,
    Joined,
    JoinRequest,
    Synced,
)

SESSION_S, REBALANCE_S = 10.0, 60.0
RANGE = (("range", b"topics"),)


class Members:
    """A group, and what its members were answered."""

    def __init__(self, members_max=10):
        numbers = count(1)
        self.group = Group(lambda client: f"{client}-{next(numbers)}", members_max)
        self.now = 0.0
        self.answers = {}

    def join(self, token, member_id="", **changes):
        fields = {
            "member_id": member_id,
            "instance_id": None,
            "session_timeout_s": SESSION_S,
            "rebalance_timeout_s": REBALANCE_S,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "client_id": token,
            "knows_ids": False,
        }
        self.group.join(JoinRequest(**(fields | changes)), token, self.now)
        return self.take(token)

    def sync(self, token, joined, assignments=()):
        claim = Claim(member_id=joined.member_id, generation=joined.generation)
        self.group.sync(claim, assignments, token, self.now)
        return self.take(token)

    def heartbeat(self, joined):
        claim = Claim(member_id=joined.member_id, generation=joined.generation)
        return self.group.heartbeat(claim, self.now)

    def advance(self, seconds):
        """Let time pass, as the timer of a server does."""
        until = self.now + seconds
        while (due := self.group.due) is not None and due <= until:
            self.now = max(self.now, due)
            self.group.advance(self.now)
        self.now = until

    def take(self, token):
        self.answers |= dict(self.group.answers)
        self.group.answers.clear()
        return self.answers.pop(token, None)


def stable(*clients):
    """A group whose members have their parts."""
    members = Members()
    for client in clients:
        assert members.join(client) is None
    members.advance(INITIAL_DELAY_S)
    joined = {client: members.take(client) for client in clients}
    leader = joined[clients[0]]
    for client in clients[1:]:
        assert members.sync(client, joined[client]) is None
    parts = [(each.member_id, client.encode()) for client, each in joined.items()]
    assert members.sync(clients[0], leader, parts).assignment == clients[0].encode()
    for client in clients[1:]:
        assert members.take(client).assignment == client.encode()
    assert members.group.state is GroupState.STABLE
    return members, joined


def test_the_first_member_leads_and_knows_the_others():
    _, joined = stable("a", "b")
    assert {each.leader for each in joined.values()} == {joined["a"].member_id}
    assert [each[0] for each in joined["a"].members] == [
        joined["a"].member_id,
        joined["b"].member_id,
    ]
    assert joined["b"].members == ()
    assert {each.generation for each in joined.values()} == {1}


def test_a_member_that_comes_lets_all_join_again():
    members, joined = stable("a", "b")
    assert members.join("c") is None
    assert members.heartbeat(joined["b"]) is GroupError.REBALANCING
    assert members.join("a", joined["a"].member_id) is None
    assert members.join("b", joined["b"].member_id).generation == 2
    assert members.take("c").generation == members.take("a").generation == 2


def test_members_that_do_not_join_again_are_left_out():
    members, joined = stable("a", "b")
    assert members.join("c") is None
    assert members.join("b", joined["b"].member_id) is None
    # Member a is alive and does not join.
    for _ in range(12):
        members.advance(SESSION_S / 2)
        members.heartbeat(joined["a"])
    assert members.take("b").generation == 2
    assert members.heartbeat(joined["a"]) is GroupError.UNKNOWN_MEMBER
    assert len(members.group.members) == 2


def test_silent_members_are_removed():
    members, joined = stable("a", "b")
    members.advance(SESSION_S - 1)
    assert members.heartbeat(joined["a"]) is None
    members.advance(2)
    assert members.heartbeat(joined["a"]) is GroupError.REBALANCING
    assert members.join("a", joined["a"].member_id).generation == 2
    assert len(members.group.members) == 1


def test_a_group_without_members_is_empty_and_its_generations_go_on():
    members, joined = stable("a")
    assert members.group.leave(joined["a"].member_id, None, members.now) is None
    assert (members.group.state, members.group.due) == (GroupState.EMPTY, None)
    members.join("b")
    members.advance(INITIAL_DELAY_S)
    assert members.take("b").generation > joined["a"].generation


def test_a_leader_that_does_not_divide_the_work_is_left_out():
    members = Members()
    members.join("a")
    members.join("b")
    members.advance(INITIAL_DELAY_S)
    joined = {client: members.take(client) for client in "ab"}
    assert members.sync("b", joined["b"]) is None
    for _ in range(13):
        members.advance(SESSION_S / 2)
        members.heartbeat(joined["a"])
    assert members.take("b").error is GroupError.REBALANCING
    assert members.heartbeat(joined["a"]) is GroupError.UNKNOWN_MEMBER
    assert members.join("b", joined["b"].member_id).leader == joined["b"].member_id


def test_a_member_whose_answer_was_lost_gets_it_again():
    members, joined = stable("a", "b")
    again = members.join("b", joined["b"].member_id)
    assert (again.generation, again.leader) == (1, joined["a"].member_id)
    assert members.sync("b", again).assignment == b"b"


def test_the_way_that_most_like_is_chosen_of_those_that_all_know():
    members = Members()
    ways = {
        "a": (("range", b"1"), ("sticky", b"2")),
        "b": (("sticky", b"3"), ("range", b"4")),
        "c": (("sticky", b"5"), ("new", b"6"), ("range", b"7")),
    }
    for client, protocols in ways.items():
        members.join(client, protocols=protocols)
    members.advance(INITIAL_DELAY_S)
    joined = members.take("a")
    assert joined.protocol == "sticky"
    assert [each[2] for each in joined.members] == [b"2", b"3", b"5"]


@pytest.mark.parametrize(
    "changes", [{"protocols": (("other", b""),)}, {"protocol_type": "connect"}]
)
def test_members_that_have_nothing_in_common_are_refused(changes):
    members, _ = stable("a")
    assert members.join("b", **changes).error is GroupError.INCONSISTENT
    assert members.group.state is GroupState.STABLE


def test_new_members_join_again_with_the_id_that_they_are_given():
    members = Members()
    first = members.join("a", knows_ids=True)
    assert first.error is GroupError.MEMBER_ID_REQUIRED
    assert members.join("a", first.member_id, knows_ids=True) is None
    members.advance(INITIAL_DELAY_S)
    assert members.take("a").member_id == first.member_id


def test_an_id_that_nobody_uses_is_forgotten():
    members = Members()
    first = members.join("a", knows_ids=True)
    members.advance(SESSION_S)
    assert members.group.due is None
    assert members.join("a", first.member_id).error is GroupError.UNKNOWN_MEMBER


def test_an_instance_that_starts_again_keeps_its_part():
    members = Members()
    members.join("a", instance_id="one")
    members.join("b", instance_id="two")
    members.advance(INITIAL_DELAY_S)
    a, b = members.take("a"), members.take("b")
    members.sync("b", b)
    members.sync("a", a, [(a.member_id, b"1"), (b.member_id, b"2")])
    members.take("b")
    again = members.join("b2", instance_id="two")
    assert (again.generation, again.error) == (a.generation, None)
    assert members.sync("b2", again).assignment == b"2"
    # The instance before is told that it was replaced.
    claim = Claim(member_id=b.member_id, generation=1, instance_id="two")
    assert members.group.check(claim) is GroupError.FENCED
    assert members.group.state is GroupState.STABLE
    # A leader that starts again need not divide the work.
    leader = members.join("a2", instance_id="one")
    assert leader.leader != leader.member_id
    assert members.sync("a2", leader).assignment == b"1"


def test_a_full_group_takes_nobody():
    members = Members(members_max=2)
    members.join("a")
    members.join("b")
    assert members.join("c").error is GroupError.FULL


def test_only_members_of_the_generation_commit_unless_there_are_none():
    members, joined = stable("a")
    check = members.group.check_commit
    tool = Claim(member_id="", generation=-1)
    assert check(Claim(member_id=joined["a"].member_id, generation=1)) is None
    assert check(tool) is GroupError.UNKNOWN_MEMBER
    old = Claim(member_id=joined["a"].member_id, generation=0)
    assert check(old) is GroupError.ILLEGAL_GENERATION
    members.advance(SESSION_S)
    assert members.group.state is GroupState.EMPTY
    assert check(tool) is None


def test_closing_refuses_requests_that_wait():
    members = Members()
    members.join("a")
    members.group.close()
    assert members.take("a") == Joined(error=GroupError.NOT_COORDINATOR)
    assert members.group.state is GroupState.EMPTY
    members, joined = stable("a")
    members.group.state = GroupState.SYNCING
    members.group.leader = ""
    members.sync("a", joined["a"])
    members.group.close()
    assert members.take("a") == Synced(error=GroupError.NOT_COORDINATOR)
