"""A group answers all members, whatever they do, and comes to rest with them."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.pure.groups import (
    Claim,
    Group,
    GroupState,
    Joined,
    JoinRequest,
)

SESSION_S, REBALANCE_S = 10.0, 30.0
MEMBERS = 4
STEPS = st.lists(
    st.tuples(
        st.integers(0, MEMBERS - 1),
        st.sampled_from(
            [
                "act",
                "act",
                "act",
                "act",
                "leave",
                "pause",
                "forget",
                "fail over",
                "jump",
            ]
        ),
        st.sampled_from([0.0, 0.1, 3.0, 11.0, 31.0]),
    ),
    max_size=40,
)
STATIC = st.lists(st.booleans(), min_size=MEMBERS, max_size=MEMBERS)


class Client:
    """A member that does what the protocol asks of it, if it is let."""

    def __init__(self, number, world, *, is_static):
        self.number = number
        self.world = world
        self.instance_id = f"i{number}" if is_static else None
        self.forget()
        self.is_paused = False

    def forget(self):
        """Start again, without its memory."""
        self.member_id, self.joined, self.part, self.token = "", None, None, None

    def act(self):
        """Send what is due; nothing while an answer is awaited."""
        if self.token is not None:
            return
        group, now = self.world.group, self.world.now
        if self.joined is None:
            self.token = self.world.token(self)
            request = JoinRequest(
                member_id=self.member_id,
                instance_id=self.instance_id,
                session_timeout_s=SESSION_S,
                rebalance_timeout_s=REBALANCE_S,
                protocol_type="consumer",
                protocols=(("range", b""),),
                client_id=f"c{self.number}",
            )
            group.join(request, self.token, now)
        elif self.part is None:
            self.token = self.world.token(self)
            parts = [(each[0], each[0].encode()) for each in self.joined.members]
            group.sync(self.claim, parts, self.token, now)
        else:
            self.end(group.heartbeat(self.claim, now))
        self.world.deliver()

    @property
    def claim(self):
        return Claim(
            member_id=self.member_id,
            generation=self.joined.generation,
            instance_id=self.instance_id,
        )

    def leave(self):
        if self.member_id:
            self.world.group.leave(self.member_id, None, self.world.now)
        self.forget()
        self.world.deliver()

    def on_answer(self, answer):
        self.token = None
        if isinstance(answer, Joined):
            self.member_id = answer.member_id or self.member_id
            if answer.error is None:
                self.joined, self.part = answer, None
                self.world.on_joined(answer)
                return
        elif answer.error is None:
            self.part = answer.assignment
            return
        self.end(answer.error)

    def end(self, error):
        if error is None:
            return
        self.joined = self.part = None
        if error.value in {"unknown_member_id", "fenced_instance_id"}:
            self.member_id = ""


class World:
    def __init__(self, static):
        self._numbers = count(1)
        self.now = 0.0
        self._failovers = 0
        self.group = self._new_group()
        self.clients = [
            Client(number, self, is_static=each) for number, each in enumerate(static)
        ]
        self.waiting = {}
        self.tokens = count(1)
        self.leaders = {}

    def _new_group(self):
        return Group(lambda client: f"{client}-{next(self._numbers)}", 100)

    def fail_over(self):
        """Let another broker coordinate the group; it knows no members."""
        self.group.close()
        self.deliver()
        assert self.group.state is GroupState.EMPTY
        self._failovers += 1
        self.group = self._new_group()

    def jump(self, seconds):
        """Let time pass without the timers of the group."""
        self.now += seconds

    def token(self, client):
        token = next(self.tokens)
        self.waiting[token] = client
        return token

    def deliver(self):
        answers, self.group.answers = self.group.answers, []
        for token, answer in answers:
            # A second answer to a request would fail here.
            client = self.waiting.pop(token)
            if client.token == token:
                client.on_answer(answer)

    def on_joined(self, joined):
        if joined.members:
            generation = self._failovers, joined.generation
            before = self.leaders.setdefault(generation, joined.member_id)
            assert before == joined.member_id, "two leaders of one generation"

    def pass_time(self, seconds):
        until = self.now + seconds
        while (due := self.group.due) is not None and due <= until:
            assert due > self.now or self.group.answers == []
            self.now = max(self.now, due)
            self.group.advance(self.now)
            self.deliver()
        self.now = until


@given(STATIC, STEPS)
def test_groups_come_to_rest_with_all_members_that_are_alive(static, steps):
    world = World(static)
    for number, what, seconds in steps:
        client = world.clients[number]
        if what == "pause":
            client.is_paused = not client.is_paused
        elif what == "fail over":
            world.fail_over()
        elif what == "jump":
            world.jump(seconds)
            continue
        elif not client.is_paused:
            getattr(client, what)()
        world.pass_time(seconds)
    living = [each for each in world.clients if not each.is_paused]
    for _ in range(60):
        for client in living:
            client.act()
        world.pass_time(1.0)
    assert all(each.part == each.member_id.encode() for each in living)
    assert set(world.group.members) == {each.member_id for each in living}
    assert {each.joined.generation for each in living} <= {world.group.generation}
    is_empty = not living
    assert world.group.state is (GroupState.EMPTY if is_empty else GroupState.STABLE)
