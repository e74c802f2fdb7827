"""Open channels end with the permissions of their client, however it loses them."""

from __future__ import annotations

import pytest

from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from support.drivers.running import published
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker
from support.fakes.stream_peer import connected

TOPIC = "/shop/orders"
WRITERS = "group:writers"
MEMBER = Principal("carl", "token", ("writers",))
FORMER = Principal("carl", "token")

OPENINGS = {
    Kind.OPEN_PRODUCER: pb.OpenProducer(topic=TOPIC, name="p"),
    Kind.OPEN_CONSUMER: pb.OpenConsumer(topic=TOPIC, subscription="s", name="c"),
    Kind.OPEN_STAGE: pb.OpenStage(
        query="q", version=0, part="0", part_id="0", topic=TOPIC
    ),
}
NEEDED = {
    Kind.OPEN_PRODUCER: Permission.PRODUCE,
    Kind.OPEN_CONSUMER: Permission.CONSUME,
    Kind.OPEN_STAGE: Permission.PRODUCE,
}


class Carl:
    """A broker, a connection of a member of a group, and ways to lose permissions."""

    def __init__(self, broker, identity, peer):
        self.broker = broker
        self.access = broker.broker.access
        self.peer = peer
        self._identity = identity

    async def renew_credentials(self, principal):
        self._identity.principal = principal
        self.peer.transport.write(
            self.peer.machine.request(Kind.AUTHENTICATE, pb.Authenticate())[1]
        )

    async def until(self, kind):
        """Return the frames up to the first one of a kind."""
        found = []
        while not found or found[-1].kind is not kind:
            found.append(await self.peer.received.get())
        return found


@pytest.fixture
async def carl():
    async with guarded_broker() as broker:
        async with client_of(broker, ROOT) as root:
            await root.namespaces.create("shop")
            await published(root, b"before", topic=TOPIC)
        access = broker.broker.access
        role = Role("writer", frozenset({Permission.PRODUCE, Permission.CONSUME}))
        await access.set_role(ROOT, role)
        await access.add_binding(ROOT, Binding(WRITERS, ("writer",), ("/shop/*",), "b"))
        identity = broker.server.authenticator = ChosenIdentity()
        identity.principal = MEMBER
        yield Carl(broker, identity, await connected(broker))


async def lose_the_group(carl):
    await carl.renew_credentials(FORMER)


async def lose_the_binding(carl):
    await carl.access.remove_binding(ROOT, "b")


async def lose_the_role(carl):
    # A role must have a permission, and this one is of no use here.
    await carl.access.set_role(ROOT, Role("writer", frozenset({Permission.MANAGE})))


async def lose_the_topic(carl):
    binding = Binding(WRITERS, ("writer",), ("/bank/*",), "b")
    await carl.access.add_binding(ROOT, binding)


LOSSES = [lose_the_group, lose_the_binding, lose_the_role, lose_the_topic]


def test_every_channel_is_tested():
    assert OPENINGS.keys() == {
        kind for kind in Kind if kind.name.startswith("OPEN_") and kind.on_channel
    }


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("kind", OPENINGS)
async def test_open_channel_ends_when_its_client_loses_the_permission(carl, kind, lose):
    opened = await carl.peer.ask(kind, OPENINGS[kind], 1)
    assert opened.kind is kind.answer, opened.message
    if kind is Kind.OPEN_CONSUMER:
        credit = pb.Credit(messages=100, bytes=10**6)
        carl.peer.transport.write(carl.peer.machine.send(Kind.CREDIT, credit, 1))
    await lose(carl)
    closed = (await carl.until(Kind.ERROR))[-1]
    assert (closed.channel, closed.message.code) == (1, "permission_denied")
    async with client_of(carl.broker, ROOT) as root:
        await published(root, b"a secret", topic=TOPIC)
    # The answer comes after whatever the broker would deliver.
    carl.peer.transport.write(carl.peer.machine.request(Kind.WHO_AM_I, pb.WhoAmI())[1])
    kinds = {each.kind for each in await carl.until(Kind.IDENTITY)}
    assert kinds <= {Kind.IDENTITY, Kind.AUTHENTICATED}
    again = await carl.peer.ask(kind, OPENINGS[kind], 2)
    assert again.message.code == "permission_denied"


async def test_fetch_that_waits_is_decided_by_the_new_credentials(carl):
    request = pb.Fetch(topic=TOPIC, base_offset=1, wait_s=30)
    carl.peer.transport.write(carl.peer.machine.request(Kind.FETCH, request)[1])
    await carl.renew_credentials(FORMER)
    await carl.until(Kind.AUTHENTICATED)
    async with client_of(carl.broker, ROOT) as root:
        await published(root, b"a secret", topic=TOPIC)
    refused = await carl.peer.received.get()
    assert (refused.kind, refused.message.code) == (Kind.ERROR, "permission_denied")


async def test_renewed_credentials_with_the_same_groups_keep_channels(carl):
    for channel, (kind, request) in enumerate(OPENINGS.items(), 1):
        assert (await carl.peer.ask(kind, request, channel)).kind is kind.answer
    await carl.renew_credentials(MEMBER)
    assert [each.kind for each in await carl.until(Kind.AUTHENTICATED)] == [
        Kind.AUTHENTICATED
    ]
