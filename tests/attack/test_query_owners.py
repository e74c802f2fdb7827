"""A staged query belongs to the principal that used it first."""

from __future__ import annotations

import pytest

from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    PermissionDenied,
    QueryNotFound,
    VersionBehind,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.wire.native.kinds import OPERATIONS, Kind
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.principals import ROOT, client_of, guarded_broker

ALICE, EVE = Principal("alice", "token"), Principal("eve", "token", ("team",))
TOPIC, OTHER = "/shop/orders", "/bank/accounts"
QUERY = "nightly"
USING = [
    kind
    for kind in sorted(OPERATIONS)
    if "query" in kind.body.DESCRIPTOR.fields_by_name
    and kind.permission is not Permission.CLUSTER_ADMIN
]
EVERYTHING_ELSE = frozenset(Permission) - {Permission.CLUSTER_ADMIN}


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        access = broker.broker.access
        for name, patterns in (
            ("alice", ("/shop/*",)),
            ("eve", ("/bank/*", "/shop/*")),
        ):
            role = Role(name, EVERYTHING_ELSE)
            await access.set_role(ROOT, role)
            binding = Binding(f"user:{name}", (name,), patterns, name)
            await access.add_binding(ROOT, binding)
        async with client_of(broker, ROOT) as root:
            for topic in (TOPIC, OTHER):
                await root.namespaces.create(topic.split("/")[1])
                await root.topics.create(topic)
        yield broker


@pytest.fixture
async def alice(guarded):
    async with client_of(guarded, ALICE) as client:
        yield client


@pytest.fixture
async def eve(guarded):
    async with client_of(guarded, EVE) as client:
        yield client


async def commit(client, version, *payloads, topic=TOPIC, query=QUERY):
    staging = client.staging(query, version)
    if await staging.is_committed():
        return None
    part = staging.part("0")
    await part.write(topic, batch_of(list(payloads)))
    return await staging.commit([await part.finish()])


async def stored(client, topic=TOPIC):
    return [each.payload async for batch in client.read(topic) for each in batch]


async def use(client, kind, version):
    """Send a request with the name of the query, about a topic of *client*."""
    if kind is Kind.OPEN_STAGE:
        part = client.staging(QUERY, version).part("0")
        return await part.write(OTHER, batch_of([b"x"]))
    given = {"query": QUERY, "version": version, "part": "0", "part_id": "x"}
    fields = kind.body.DESCRIPTOR.fields_by_name
    named = {name: each for name, each in given.items() if name in fields}
    return await client.requester.send_request(kind.body(**named))


@pytest.mark.parametrize("version", [0, 1, 2**62])
@pytest.mark.parametrize("kind", USING)
async def test_operation_on_the_query_of_another_principal_is_refused(
    alice, eve, kind, version
):
    await commit(alice, 0, b"0")
    before = await alice.staging(QUERY, 0).describe()
    with pytest.raises(PermissionDenied):
        await use(eve, kind, version)
    assert await alice.staging(QUERY, 0).describe() == before
    for later in (1, 2):
        await commit(alice, later, b"%d" % later)
    assert await stored(alice) == [b"0", b"1", b"2"]


async def test_query_belongs_to_its_first_user_before_anything_is_committed(alice, eve):
    part = alice.staging(QUERY, 0).part("0")
    await part.write(TOPIC, batch_of([b"0"]))
    with pytest.raises(PermissionDenied, match="use another name"):
        await eve.staging(QUERY, 2**62).commit([])
    await alice.staging(QUERY, 0).commit([await part.finish()])
    assert await stored(alice) == [b"0"]


async def test_transaction_is_not_fenced_by_another_principal(alice, eve):
    async with alice.transaction("totals") as transaction:
        with pytest.raises(PermissionDenied):
            await eve.requester.send_request(
                pb.BeginTransaction(query="transaction:totals")
            )
        await transaction.send(TOPIC, b"sum")
    assert await stored(alice) == [b"sum"]


async def test_released_query_keeps_its_progress(guarded, alice, eve):
    await commit(alice, 0, b"0")
    with pytest.raises(PermissionDenied):
        await alice.security.release_query(QUERY)
    async with client_of(guarded, ROOT) as root:
        await root.security.release_query(QUERY)
        with pytest.raises(QueryNotFound):
            await root.security.release_query(QUERY)
    assert await commit(eve, 0, b"0") is None
    await commit(eve, 1, b"1")
    with pytest.raises(PermissionDenied):
        await commit(alice, 2, b"2")
    assert await stored(eve) == [b"0", b"1"]


async def test_administrator_of_the_cluster_may_use_every_query(guarded, alice):
    await commit(alice, 0, b"0")
    async with client_of(guarded, ROOT) as root:
        await commit(root, 1, b"1")
    await commit(alice, 2, b"2")
    assert await stored(alice) == [b"0", b"1", b"2"]


async def test_writer_that_is_far_behind_stops_instead_of_skipping(alice):
    await alice.staging(QUERY, 2**62).commit([])
    with pytest.raises(VersionBehind):
        await commit(alice, 1, b"1")
    with pytest.raises(VersionBehind):
        await alice.staging(QUERY, 1).commit([])
