"""
What operations touch besides their resource, in each situation that it may be in.

The table of operations declares it.  A declared target without a class here fails, and
a class without an answer for one of the situations, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pydanube import connect
from pydanube.client.client import Client
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    PermissionDenied,
    QuotaExceeded,
    Refused,
    SchemaNotFound,
)
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from pydanube.model.retry import RetryPolicy
from pydanube.model.schemas import (
    ReferencedVersion,
    SchemaReference,
    TopicSchema,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding
from pydanube.wire.native.kinds import OPERATIONS, Kind, On, Target
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.topics import dead_letters
from pydanube_broker.storage.config import NamedStoreConfig
from pydanube_broker.storage.remote.tiered_objects import MARKER_NAME
from support.fakes.guarded_clusters import ROOT, GuardedCluster, eventually, running

OWN, RESULTS = "/shop/orders", "/shop/results"
SUBJECT = "ledger"
QUOTA = "/bank"

DECLARED = [(kind, each) for kind in sorted(OPERATIONS) for each in kind.targets]
SITUATIONS = (
    "permission_is_missing",
    "permission_is_revoked_later",
    "quota_is_used_up",
    "target_is_at_another_broker",
    "target_is_created_again",
    "target_is_of_the_system",
)


@dataclass
class Reading:
    """A value of the subject."""

    n: int


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses after failures very short."""
    monkeypatch.setattr(dead_letters, "RETRIES", RetryPolicy(0.001, 0.002))


@pytest.fixture
async def guarded_cluster(tmp_path: Path) -> AsyncIterator[GuardedCluster]:
    stores = {
        name: NamedStoreConfig(url=f"fs://{tmp_path}/{name}")
        for name in ("backups", "only-a")
    }
    async with running(stores) as cluster:
        for namespace in ("shop", "bank"):
            await cluster.root.namespaces.create(namespace)
        for topic in (OWN, RESULTS):
            await cluster.root.topics.create(topic)
        await cluster.let("own", "/shop/*", *Permission)
        yield cluster


class Uses:
    """The uses of one declared target; a method for each of the situations."""

    def __init__(self, world: GuardedCluster, kind: Kind, target: Target) -> None:
        self.world, self.kind, self.target = world, kind, target
        self.root, self.alice = world.root, world.alice

    async def prepare(self) -> None:
        """Create what all situations need."""


class DeadLetters(Uses):
    """A topic to which the broker copies the failed messages of a subscription."""

    async def prepare(self) -> None:
        self.ledger = self.world.name_at("/bank/ledger", beside=OWN, is_same=False)
        await self.root.topics.create(self.ledger)
        await self.root.subscriptions.create(OWN, "s", start="earliest")

    async def write(self, client: Client, topic: str) -> None:
        policy = FailurePolicy(
            redeliveries_max=0,
            redelivery_delay_s=0.0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=topic,
        )
        await client.subscriptions.configure(OWN, "s", failure_policy=policy)

    async def fail_one(self) -> None:
        async with self.root.producer(OWN) as producer:
            await producer.send(b"bad")
        async with self.root.consumer(OWN, subscription="s") as consumer:
            await consumer.nack(await consumer.receive(timeout_s=60))

    async def waits(self, text: str) -> None:
        async def does() -> bool:
            found = await self.root.subscriptions.describe(OWN, "s")
            return text in str(found.dead_letter_error)

        await eventually(does)

    async def arrives(self, topic: str) -> None:
        async def has() -> bool:
            return await self.world.read(topic) == [b"bad"]

        await eventually(has)

    async def permission_is_missing(self) -> None:
        await self.world.let(
            "other", "/bank/*", *(set(Permission) - {Permission.PRODUCE})
        )
        with pytest.raises(PermissionDenied):
            await self.write(self.alice, self.ledger)
        settings = await self.root.subscriptions.settings(OWN, "s")
        assert settings.failure_policy is None

    async def permission_is_revoked_later(self) -> None:
        await self.world.let("other", "/bank/*", Permission.PRODUCE)
        await self.write(self.alice, self.ledger)
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        await self.fail_one()
        await self.waits("may not publish")
        assert await self.world.read(self.ledger) == []
        await self.world.let("other", "/bank/*", Permission.PRODUCE)
        await self.arrives(self.ledger)

    async def quota_is_used_up(self) -> None:
        await self.world.let("other", "/bank/*", Permission.PRODUCE)
        await self.write(self.alice, self.ledger)
        async with self.world.used_up(self.ledger):
            await self.fail_one()
            await self.waits("storage_bytes")
            assert await self.world.read(self.ledger) == []
        await self.arrives(self.ledger)

    async def target_is_at_another_broker(self) -> None:
        await self.world.let("other", "/bank/*", Permission.PRODUCE, Permission.CREATE)
        for is_same in (True, False):
            topic = self.world.name_at("/bank/new", beside=OWN, is_same=is_same)
            await self.write(self.alice, topic)
            await self.fail_one()
            await self.arrives(topic)

    async def target_is_created_again(self) -> None:
        await self.world.let("other", "/bank/*", Permission.PRODUCE)
        await self.write(self.alice, self.ledger)
        await self.root.topics.delete(self.ledger)
        await self.fail_one()
        await self.waits("create on")
        await self.root.topics.create(self.ledger)
        await self.arrives(self.ledger)

    async def target_is_of_the_system(self) -> None:
        for client in (self.alice, self.root):
            for topic in ("/system/audit", "/system/forged"):
                with pytest.raises(InvalidRequest, match="is a system topic"):
                    await self.write(client, topic)


class Acknowledgements(Uses):
    """A topic whose messages a transaction acknowledges."""

    async def prepare(self) -> None:
        self.ledger = self.world.name_at("/bank/ledger", beside=RESULTS, is_same=True)
        await self.create()

    async def create(self) -> None:
        await self.root.topics.create(self.ledger)
        await self.root.subscriptions.create(self.ledger, "s", start="earliest")
        async with self.root.producer(self.ledger) as producer:
            await producer.send(b"input")

    async def commit(self, before: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Publish a result and acknowledge its input; call *before* the commit."""
        async with (
            self.alice.consumer(self.ledger, subscription="s") as consumer,
            self.alice.transaction("copy") as transaction,
        ):
            message = await consumer.receive(timeout_s=60)
            await transaction.send(RESULTS, message.payload)
            await transaction.ack(message)
            if before is not None:
                await before()

    async def is_done(self, *, is_done: bool) -> None:
        """Check that the result is there and the input acknowledged, or neither."""
        assert await self.world.read(RESULTS) == [b"input"] * is_done
        found = await self.root.subscriptions.describe(self.ledger, "s")
        assert found.cursor == is_done

    async def permission_is_missing(self) -> None:
        others = set(Permission) - {Permission.CONSUME}
        await self.world.let("other", "/bank/*", *others)
        acks = pb.TransactionAcks(topic=self.ledger, subscription="s")
        begun = await self.alice.requester.send_request(pb.BeginTransaction(query="q"))
        request = pb.CommitStaged(
            query="q", version=begun.version, is_transaction=True, acks=[acks]
        )
        with pytest.raises(PermissionDenied):
            await self.alice.requester.send_request(request)
        await self.is_done(is_done=False)

    async def permission_is_revoked_later(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)

        async def revoke() -> None:
            await self.world.let("other", "/bank/*", Permission.PRODUCE)

        with pytest.raises(PermissionDenied):
            await self.commit(revoke)
        await self.is_done(is_done=False)
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        await self.commit()
        await self.is_done(is_done=True)

    async def quota_is_used_up(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        async with self.world.used_up(RESULTS):
            with pytest.raises(QuotaExceeded):
                await self.commit()
            await self.is_done(is_done=False)
        # Acknowledging stores no messages.
        async with self.world.used_up(self.ledger):
            await self.commit()
        await self.is_done(is_done=True)

    async def target_is_at_another_broker(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        self.ledger = self.world.name_at("/bank/ledger", beside=RESULTS, is_same=False)
        await self.create()
        await self.commit()
        await self.is_done(is_done=True)

    async def target_is_created_again(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)

        async def create_again() -> None:
            await self.root.topics.delete(self.ledger, force=True)
            await self.create()

        with pytest.raises(BrokerError):
            await self.commit(create_again)
        await self.is_done(is_done=False)
        await self.commit()
        await self.is_done(is_done=True)

    async def target_is_of_the_system(self) -> None:
        await self.world.let("other", "/*", Permission.CONSUME)
        await self.root.topics.create("/system/replies-of-others")
        self.ledger = "/system/replies-of-others"
        await self.permission_is_missing_on_it()

    async def permission_is_missing_on_it(self) -> None:
        acks = pb.TransactionAcks(topic=self.ledger, subscription="s")
        begun = await self.alice.requester.send_request(pb.BeginTransaction(query="q"))
        request = pb.CommitStaged(
            query="q", version=begun.version, is_transaction=True, acks=[acks]
        )
        with pytest.raises(PermissionDenied):
            await self.alice.requester.send_request(request)


class Subjects(Uses):
    """A subject whose schemas messages have, or to which another schema refers."""

    async def prepare(self) -> None:
        await self.root.schemas.register(SUBJECT, Reading)
        await self.world.let("schemas", "subject:own", Permission.SCHEMA_WRITE)

    async def write(
        self, client: Client, *, topic: str = OWN, subject: str = SUBJECT
    ) -> None:
        match self.kind:
            case Kind.OPEN_PRODUCER:
                async with client.producer(topic, subject=subject) as producer:
                    await producer.send({"n": 1})
            case Kind.CONFIGURE_TOPIC:
                schema = TopicSchema(subject=subject)
                await client.topics.configure(topic, schema=schema)
            case Kind.REGISTER_SCHEMA:
                to = ReferencedVersion(name="R", subject=subject, version=1)
                await client.schemas.register("own", Reading, references=[to])
            case _:
                part = client.staging("q", 1).part("0")
                batch = pa.RecordBatch.from_pydict({"payload": [b"x"]})
                reference = SchemaReference(subject=subject)
                try:
                    await part.write(topic, batch, schema=reference)
                    await part.finish()
                finally:
                    await part.abort()

    async def let_read(self, *permissions: Permission) -> None:
        await self.world.let("other", f"subject:{SUBJECT}", *permissions)

    async def permission_is_missing(self) -> None:
        others = set(Permission) - {Permission.SCHEMA_READ, Permission.SCHEMA_WRITE}
        await self.let_read(*others)
        for subject in (SUBJECT, "unknown"):
            # The answer does not tell whether there is one.
            with pytest.raises(PermissionDenied):
                await self.write(self.alice, subject=subject)
        assert (await self.root.topics.describe(OWN)).schema is None

    async def permission_is_revoked_later(self) -> None:
        await self.let_read(Permission.SCHEMA_READ)
        await self.write(self.alice)
        bound = (await self.root.topics.describe(OWN)).schema
        await self.let_read(Permission.DESCRIBE)
        with pytest.raises(PermissionDenied):
            await self.write(self.alice)
        # A binding belongs to the topic.
        assert (await self.root.topics.describe(OWN)).schema == bound

    async def quota_is_used_up(self) -> None:
        await self.let_read(Permission.SCHEMA_READ)
        async with self.world.used_up(OWN):
            if self.kind in {Kind.OPEN_PRODUCER, Kind.OPEN_STAGE}:
                with pytest.raises(QuotaExceeded):
                    await self.write(self.alice)
            else:
                await self.write(self.alice)

    async def target_is_at_another_broker(self) -> None:
        await self.let_read(Permission.SCHEMA_READ)
        for is_same in (True, False):
            topic = self.world.name_at("/shop/x", beside=OWN, is_same=is_same)
            await self.root.topics.create(topic)
            await self.write(self.alice, topic=topic)

    async def target_is_created_again(self) -> None:
        await self.let_read(Permission.SCHEMA_READ)
        await self.root.schemas.delete(SUBJECT)
        with pytest.raises(SchemaNotFound):
            await self.write(self.alice)
        await self.root.schemas.register(SUBJECT, Reading)
        await self.write(self.alice)

    async def target_is_of_the_system(self) -> None:
        if self.kind is Kind.REGISTER_SCHEMA:
            # No subject belongs to the system.
            return
        await self.let_read(Permission.SCHEMA_READ)
        with pytest.raises(Refused):
            await self.write(self.alice, topic="/system/audit")


class Stores(Uses):
    """An object store that the settings of the brokers name."""

    unknown: ClassVar = "not the name of a store|only brokers with metadata"
    """Brokers of a cluster make no backups, whatever the name is."""

    async def prepare(self) -> None:
        remote = self.world.served.cluster.remote
        await remote.put(MARKER_NAME, b"{}")

    async def write(self, client: Client, name: str = "backups") -> None:
        match self.kind:
            case Kind.CREATE_BACKUP:
                await client.storage.create_backup(name)
            case Kind.COPY_SEGMENTS:
                await client.storage.copy(name)
            case _:
                after = ""
                while True:
                    page = await client.storage.verify(
                        source=name, repair=True, after=after
                    )
                    if not (after := page.after):
                        break

    async def permission_is_missing(self) -> None:
        await self.world.let("all", "/*", *Permission)
        for name in ("backups", "unknown"):
            with pytest.raises(PermissionDenied):
                await self.write(self.alice, name)

    async def permission_is_revoked_later(self) -> None:
        await self.world.let("all", "cluster", Permission.CLUSTER_ADMIN)
        await self.try_to_write()
        await self.world.let("all", "cluster", Permission.DESCRIBE)
        with pytest.raises(PermissionDenied):
            await self.write(self.alice)

    async def try_to_write(self) -> None:
        """Use the store; brokers of this world may have nothing to do with it."""
        try:
            await self.write(self.alice)
        except BrokerError as error:
            assert not isinstance(error, Refused)  # noqa: PT017
            assert "settings" not in str(error)  # noqa: PT017

    async def quota_is_used_up(self) -> None:
        await self.world.let("all", "cluster", Permission.CLUSTER_ADMIN)
        async with self.world.used_up(OWN):
            await self.try_to_write()

    async def target_is_at_another_broker(self) -> None:
        await self.world.let("all", "cluster", Permission.CLUSTER_ADMIN)
        # The settings of the first broker name another store than those of the second.
        errors = []
        for client in (self.alice, self.root):
            for name in ("backups", "only-a"):
                try:
                    await self.write(client, name)
                except BrokerError as error:
                    errors.append(str(error))
        found = [each for each in errors if "in the settings of" in each]
        assert all("the settings of the broker b;" in each for each in found)
        # Both clients ask all brokers to verify segments, and one of them to copy.
        counts = {Kind.VERIFY_SEGMENTS: 2, Kind.COPY_SEGMENTS: 1}
        assert len(found) == counts.get(self.kind, 0)

    async def target_is_created_again(self) -> None:
        await self.world.let("all", "cluster", Permission.CLUSTER_ADMIN)
        with pytest.raises(InvalidRequest, match=self.unknown):
            await self.write(self.alice, "backup")
        await self.try_to_write()

    async def target_is_of_the_system(self) -> None:
        await self.world.let("all", "cluster", Permission.CLUSTER_ADMIN)
        for name in ("fs:///etc", "/system/audit", "../backups"):
            with pytest.raises(InvalidRequest, match=self.unknown):
                await self.write(self.root, name)


class Queries(Uses):
    """A query in whose name a part is staged."""

    async def write(self, client: Client, topic: str = OWN) -> None:
        part = client.staging("q", 1).part("0")
        try:
            await part.write(topic, pa.RecordBatch.from_pydict({"payload": [b"x"]}))
            await part.finish()
        finally:
            await part.abort()

    async def permission_is_missing(self) -> None:
        await self.write(self.root)
        with pytest.raises(PermissionDenied, match="belongs to another principal"):
            await self.write(self.alice)

    async def permission_is_revoked_later(self) -> None:
        await self.write(self.alice)
        await self.world.let("own", "/shop/*", Permission.CONSUME)
        with pytest.raises(PermissionDenied):
            await self.write(self.alice)

    async def quota_is_used_up(self) -> None:
        async with self.world.used_up(OWN):
            with pytest.raises(QuotaExceeded):
                await self.write(self.alice)
        await self.write(self.alice)

    async def target_is_at_another_broker(self) -> None:
        await self.write(self.root)
        topic = self.world.name_at("/shop/x", beside=OWN, is_same=False)
        await self.root.topics.create(topic)
        with pytest.raises(PermissionDenied, match="belongs to another principal"):
            await self.write(self.alice, topic)

    async def target_is_created_again(self) -> None:
        await self.write(self.root)
        await self.root.security.release_query("q")
        await self.write(self.alice)
        bob = Binding("user:bob", ("own",), ("/shop/*",), "bob")
        await self.world.brokers[0].access.add_binding(ROOT, bob)
        async with connect(
            "danube://a", token="bob", allow_plaintext_credentials=True
        ) as client:
            with pytest.raises(PermissionDenied):
                await self.write(client)

    async def target_is_of_the_system(self) -> None:
        with pytest.raises(Refused):
            await self.write(self.alice, "/system/audit")


class Listed(Uses):
    """A topic of which a list of several topics has something."""

    async def prepare(self) -> None:
        self.ledgers = [
            self.world.name_at("/bank/ledger", beside=OWN, is_same=is_same)
            for is_same in (True, False)
        ]
        for ledger in self.ledgers:
            await self.root.topics.create(ledger)

    async def found(self, *topics: str) -> dict[str, Any]:
        """What Alice learns of *topics*, whichever broker she asks."""
        ranges = [pb.SegmentRange(topic=each) for each in topics]
        answer = await self.alice.requester.send_request(pb.FindSegments(ranges=ranges))
        asked = {each.topic for each in answer.topics}
        asked |= {name for each in answer.elsewhere for name in each.topics}
        found = await self.alice.storage.list_segments(dict.fromkeys(topics, (0, 0)))
        assert asked == set(found)
        return found

    async def permission_is_missing(self) -> None:
        await self.world.let(
            "other", "/bank/*", *(set(Permission) - {self.kind.permission})
        )
        with pytest.raises(Refused):
            await self.alice.storage.segments(self.ledgers[0])
        assert await self.found_or_refused(*self.ledgers) == {}

    async def found_or_refused(self, *topics: str) -> dict[str, Any]:
        try:
            return await self.found(*topics)
        except Refused:
            return {}

    async def permission_is_revoked_later(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        assert set(await self.found(*self.ledgers)) == set(self.ledgers)
        await self.permission_is_missing()

    async def quota_is_used_up(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        async with self.world.used_up(self.ledgers[0]):
            assert set(await self.found(*self.ledgers)) == set(self.ledgers)

    async def target_is_at_another_broker(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        for ledger in self.ledgers:
            assert set(await self.found(ledger)) == {ledger}

    async def target_is_created_again(self) -> None:
        await self.world.let("other", "/bank/*", Permission.CONSUME)
        before = await self.found(*self.ledgers)
        for ledger in self.ledgers:
            await self.root.topics.delete(ledger)
            await self.root.topics.create(ledger)
        after = await self.found(*self.ledgers)
        for ledger in self.ledgers:
            assert after[ledger].topic_id > before[ledger].topic_id

    async def target_is_of_the_system(self) -> None:
        await self.world.let("other", "/*", Permission.CONSUME)
        await self.root.topics.create("/system/replies-of-others")
        assert await self.found_or_refused("/system/replies-of-others") == {}


USES: dict[tuple[On, Permission | None], type[Uses]] = {
    (On.TOPIC, Permission.PRODUCE): DeadLetters,
    (On.TOPIC, Permission.CONSUME): Acknowledgements,
    (On.TOPIC, None): Listed,
    (On.SUBJECT, Permission.SCHEMA_READ): Subjects,
    (On.STORE, None): Stores,
    (On.STAGING, None): Queries,
}


def untested(declared: list[tuple[Any, Target]]) -> list[tuple[Any, str]]:
    """Return the declared targets, and situations, that no class here tests."""
    return [
        (kind, situation)
        for kind, target in declared
        for situation in SITUATIONS
        if not hasattr(USES.get((target.on, target.permission)), situation)
    ]


def test_every_declared_target_is_tested_in_every_situation():
    assert untested(DECLARED) == []


def test_new_kind_of_target_is_missed():
    toy = SimpleNamespace(name="FORWARD"), Target("to", On.NAMESPACE, Permission.CREATE)
    assert untested([toy]) == [(toy[0], each) for each in SITUATIONS]


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    ("kind", "target"),
    DECLARED,
    ids=[f"{kind.name.lower()}-{each.field}" for kind, each in DECLARED],
)
async def test_rule_holds_if_the(
    guarded_cluster: GuardedCluster, kind: Kind, target: Target, situation: str
) -> None:
    uses = USES[target.on, target.permission](guarded_cluster, kind, target)
    await uses.prepare()
    await getattr(uses, situation)()
