"""Lists of topics: what they have, what they read, and when they end."""

from __future__ import annotations

import random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker_opening import LISTS_MAX
from pydanube_broker.operations.topic_lists import CHUNK
from support.fakes.brokers import RELIABLE
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.fakes.stream_peer import connected

ALICE, BOB = Principal("alice", "token"), Principal("bob", "token")
NAMESPACES = ("a", "a-b", "a_b", "b", "default")
PATTERNS = (
    *("/a/*", "/a-b/x1", "/a_b/*", "/b/?2", "/default/x*", "/*/x1", "/a*/y2", "*"),
    *("/nothing/*", "cluster", "subject:*", "/b"),
)


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        yield broker


async def fill(broker):
    async with client_of(broker, ROOT) as root:
        for namespace in NAMESPACES:
            await root.namespaces.create(namespace, exist_ok=True)
            for name in ("x1", "x2", "y1", "y2"):
                await root.topics.create(f"/{namespace}/{name}")


async def bind(broker, principal, patterns):
    access = broker.broker.access
    role = Role("seen", frozenset({Permission.DESCRIBE}))
    await access.set_role(ROOT, role)
    member = f"user:{principal.name}"
    await access.add_binding(ROOT, Binding(member, ("seen",), patterns, "seen"))


async def pages(client, namespace, limit):
    found, after = [], ""
    while True:
        request = pb.ListTopics(namespace=namespace, after=after, limit=limit)
        page = await client.requester.send_request(request)
        found += page.topics
        if not page.has_more:
            return found
        assert len(page.topics) == limit
        after = page.topics[-1]


@pytest.mark.parametrize("seed", range(12))
async def test_pages_of_any_size_have_what_the_caller_may_see(guarded, seed):
    chance = random.Random(seed)
    await fill(guarded)
    patterns = tuple(chance.sample(PATTERNS, chance.randint(1, 4)))
    await bind(guarded, ALICE, patterns)
    policy = guarded.broker.access.policy
    everything = [str(name) for name in await guarded.broker.catalog.names()]
    async with client_of(guarded, ALICE) as alice:
        seen = [
            name
            for name in everything
            if (await alice.security.check_access("describe", name)).allowed
        ]
        for limit in (1, 2, 3, 100):
            assert await pages(alice, "", limit) == seen, (patterns, policy)
        assert await alice.topics.list() == seen
        for namespace in NAMESPACES:
            own = [name for name in seen if name.startswith(f"/{namespace}/")]
            assert await pages(alice, namespace, 1) == own


async def test_list_of_a_client_that_has_gone_is_not_carried_out(guarded):
    lists = guarded.broker.lists.of(ALICE.name)
    for _ in range(LISTS_MAX):
        await lists.acquire()
    async with client_of(guarded, ALICE) as alice:
        known = set(guarded.server.connections)
        peer = await connected(guarded)
        [connection] = guarded.server.connections.keys() - known
        connection.identity = next(iter(known)).identity
        for _ in range(3):
            sent = peer.machine.request(Kind.LIST_TOPICS, pb.ListTopics(limit=1))
            peer.transport.write(sent[1])
        # The answer to a later request shows that the others were received.
        await peer.ask(Kind.WHO_AM_I, pb.WhoAmI())
        peer.transport.abort()
        for _ in range(LISTS_MAX):
            lists.release()
        assert await alice.topics.list() == []
        assert guarded.server.request_seconds[Kind.LIST_TOPICS].count == 1


async def test_lists_of_one_principal_wait_for_each_other_and_hold_up_nobody(guarded):
    await fill(guarded)
    lists = guarded.broker.lists.of(ALICE.name)
    for _ in range(LISTS_MAX):
        await lists.acquire()
    async with (
        client_of(guarded, ALICE) as alice,
        client_of(guarded, BOB) as bob,
        task_scope() as tasks,
    ):
        waiting = tasks.start(alice.topics.list())
        assert await bob.topics.list() == []
        assert (await alice.security.who_am_i()).name == "alice"
        assert not waiting.done()
        lists.release()
        assert await waiting == []


async def test_catalog_is_read_in_large_chunks_whatever_the_client_asks(guarded):
    topics = guarded.broker.topics
    for number in range(30):
        await topics.create(TopicName.parse(f"/default/t{number:02}"), RELIABLE)
    await bind(guarded, ALICE, ("/default/t29",))
    store = guarded.broker.catalog._store  # noqa: SLF001  # It is counted, not changed.
    assert CHUNK > 30
    scans = []

    class Counting:
        """The store, which counts scans."""

        def __getattr__(self, name):
            return getattr(store, name)

        async def scan_valid(self, prefix, **page):
            scans.append(page.get("limit"))
            return await store.scan_valid(prefix, **page)

    guarded.broker.catalog._store = Counting()  # noqa: SLF001
    async with client_of(guarded, ALICE) as alice:
        page = await alice.requester.send_request(pb.ListTopics(limit=1))
    assert list(page.topics) == ["/default/t29"]
    # One of two topics, as the page is looked for, and then a chunk.
    assert scans == [2, CHUNK]
