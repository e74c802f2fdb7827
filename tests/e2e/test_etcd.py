"""A metadata store in etcd whose members hang, die, compact, and check who calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pydanube.metadata.etcd.store import open_etcd
from pydanube.metadata.key import prefix_of
from pydanube.metadata.store import ABSENT, Delete, Put
from pydanube.model.errors import (
    InvalidConfig,
    MetadataUnavailable,
    SessionLost,
    TransactionTooLarge,
)
from support.certificates import write_certificates
from support.etcd import (
    EtcdMember,
    ask,
    config_of,
    encoded,
    etcd_cluster,
    etcd_member,
)
from support.ports import free_port
from support.tcp_proxy import Fault, tcp_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from pydanube.metadata.store import MetadataStore

pytestmark = pytest.mark.e2e

THINGS = prefix_of("/things/", int)
TEXTS = prefix_of("/texts/", str)
ONE = THINGS.key("one")
TWO = THINGS.key("two")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[EtcdMember]]:
    """Run a cluster of etcd with three members; the leader is the first one."""
    with etcd_cluster(tmp_path) as members:
        yield sorted(members, key=lambda member: not member.is_leader())


async def value_of(store: MetadataStore) -> int | None:
    stored = await store.get(ONE)
    return None if stored is None else stored.value


# Members that fail.


@pytest.mark.parametrize("paused", [0, 1], ids=["leader", "follower"])
async def test_calls_and_watches_leave_a_paused_member(
    cluster: list[EtcdMember], paused: int
) -> None:
    used = cluster[paused]
    others = [member for member in cluster if member is not used]
    config = config_of(used, *others, session_ttl_s=30)
    async with (
        open_etcd(config) as store,
        store.open_session(30) as session,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await store.transaction([], [Put(ONE, 1, session)])
        await anext(watch)
        used.pause()
        try:
            revision = await store.put(TWO, 2, expected=ABSENT)
            changes = await anext(watch)
            assert (changes.revision, list(changes.values)) == (revision, [TWO.path])
            assert [each.value for _, each in await store.scan(THINGS)] == [1, 2]
            assert not session.is_lost
        finally:
            used.resume()
        await store.put(TWO, 3)
        assert (await anext(watch)).values[TWO.path].value == 3


@pytest.mark.soak
async def test_a_watch_alone_leaves_a_paused_member(cluster: list[EtcdMember]) -> None:
    leader, paused, other = cluster
    config = config_of(paused, other)
    async with (
        open_etcd(config) as store,
        open_etcd(config_of(leader, cluster_name=config.cluster_name)) as writer,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await writer.put(ONE, 1)
        await anext(watch)
        paused.pause()
        try:
            # The one that watches makes no call that could fail.
            await writer.put(ONE, 2)
            assert (await anext(watch)).values[ONE.path].value == 2
        finally:
            paused.resume()


async def test_the_death_of_the_leader_delays_changes(
    cluster: list[EtcdMember],
) -> None:
    async with (
        open_etcd(config_of(*cluster)) as store,
        store.open_session(30) as session,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await store.transaction([], [Put(ONE, 1, session)])
        await anext(watch)
        cluster[0].kill()
        revision = await store.put(TWO, 2, expected=ABSENT)
        changes = await anext(watch)
        assert (changes.revision, list(changes.values)) == (revision, [TWO.path])
        assert await value_of(store) == 1
        assert not session.is_lost


@pytest.mark.soak
async def test_without_a_majority_the_store_is_unavailable(
    cluster: list[EtcdMember],
) -> None:
    async with open_etcd(config_of(*cluster, timeout_s=2.0)) as store:
        await store.put(ONE, 1)
        cluster[0].kill()
        cluster[1].kill()
        with pytest.raises(MetadataUnavailable, match="etcd does not answer"):
            await store.put(ONE, 2)
        with pytest.raises(MetadataUnavailable, match="etcd does not answer"):
            await store.get(ONE)
        for member in cluster[:2]:
            member.start()
        for member in cluster[:2]:
            member.wait()
        # The failed change is made or not, but not later than this one.
        async with open_etcd(config_of(*cluster)) as other:
            await other.revision()
        revision = await store.put(ONE, 3)
        stored = await store.get(ONE)
        assert (stored.value, stored.revision) == (3, revision)


async def test_an_endpoint_that_does_not_answer_is_skipped(etcd: EtcdMember) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with open_etcd(config_of(nobody, etcd)) as store:
        await store.put(ONE, 1)
        assert await value_of(store) == 1


async def test_without_any_endpoint_that_answers_the_store_does_not_open() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    config = config_of(f"http://{nobody}", timeout_s=1.0)
    with pytest.raises(
        MetadataUnavailable, match=f"metadata.etcd.endpoints.*{nobody}: .*onnect"
    ):
        async with open_etcd(config):
            pass


async def test_without_endpoints_the_store_does_not_open() -> None:
    with pytest.raises(InvalidConfig, match="expected the members of etcd"):
        async with open_etcd(config_of()):
            pass


# Connections that fail.


@asynccontextmanager
async def proxied_store(
    etcd: EtcdMember, **settings: object
) -> AsyncIterator[tuple[object, MetadataStore, MetadataStore]]:
    """Open a store behind a proxy, and the same one without it."""
    async with tcp_proxy(etcd.port) as proxy:
        config = config_of(f"http://127.0.0.1:{proxy.port}", **settings)
        direct = config_of(etcd, cluster_name=config.cluster_name)
        async with open_etcd(config) as store, open_etcd(direct) as other:
            yield proxy, store, other


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.REFUSE])
async def test_a_change_is_made_once_although_connections_break(
    etcd: EtcdMember, fault: Fault
) -> None:
    async with proxied_store(etcd) as (proxy, store, other):
        await store.put(TWO, 0)
        proxy.faults_max = proxy.fault_count + 1
        proxy.fault = fault
        if fault is Fault.REFUSE:
            proxy.cut()
        revision = await store.put(ONE, 1, expected=ABSENT)
        stored = await other.get(ONE)
        assert (stored.value, stored.revision) == (1, revision)
        assert proxy.fault is Fault.NONE


async def test_a_watch_that_missed_compacted_changes_reports_what_differs(
    etcd: EtcdMember,
) -> None:
    async with proxied_store(etcd) as (proxy, store, other):
        for name in ("kept", "deleted", "changed"):
            await other.put(THINGS.key(name), 1)
        async with store.watch(THINGS) as watch:
            await anext(watch)
            # The watch has begun when it has reported a change.
            await other.put(THINGS.key("kept"), 2)
            await anext(watch)
            proxy.fault = Fault.REFUSE
            proxy.cut()
            await other.delete(THINGS.key("deleted"))
            await other.put(THINGS.key("changed"), 2)
            await other.put(THINGS.key("new"), 3)
            await other.transaction([], [Put(TWO, 1), Put(ONE, 1)])
            revision = await other.transaction([], [Delete(TWO), Delete(ONE)])
            await asyncio.to_thread(etcd.compact)
            proxy.fault = Fault.NONE
            changes = await anext(watch)
            assert changes.revision >= revision
            assert {
                THINGS.name_of(path): stored and stored.value
                for path, stored in changes.values.items()
            } == {"deleted": None, "changed": 2, "new": 3}
            await other.put(ONE, 4)
            assert list((await anext(watch)).values) == [ONE.path]


async def test_a_watch_that_was_cut_off_reports_each_change(etcd: EtcdMember) -> None:
    async with proxied_store(etcd) as (proxy, store, other), store.watch(THINGS) as w:
        await anext(w)
        seen = {}
        for value in range(5):
            proxy.cut()
            await other.put(ONE, value)
            await other.put(THINGS.key(str(value)), value)
        while len(seen) < 6:
            seen |= (await anext(w)).values
        assert seen[ONE.path].value == 4


# Sessions.


async def test_a_session_that_cannot_be_kept_alive_is_lost(etcd: EtcdMember) -> None:
    async with proxied_store(etcd, timeout_s=1.0) as (proxy, store, other):
        async with other.watch(THINGS) as watch, store.open_session(2) as session:
            await anext(watch)
            await store.transaction([], [Put(ONE, 1, session)])
            await anext(watch)
            proxy.fault = Fault.REFUSE
            proxy.cut()
            await session.lost.wait()
            assert session.is_lost
            with pytest.raises(SessionLost):
                await store.transaction([], [Put(TWO, 1, session)])
            # The holder knew it before the store deleted the key.
            while (await anext(watch)).values.get(ONE.path) is not None:
                pass
        assert await value_of(other) is None


async def test_a_session_that_etcd_ends_is_lost(etcd: EtcdMember) -> None:
    async with (
        open_etcd(config_of(etcd)) as store,
        store.open_session(3) as session,
    ):
        await store.transaction([], [Put(ONE, 1, session)])
        etcd.ask("lease/revoke", ID=int(session.session_id, 16))
        await session.lost.wait()
        assert await value_of(store) is None


# Limits.


async def test_changes_beyond_the_limits_of_etcd_are_refused(etcd: EtcdMember) -> None:
    async with open_etcd(config_of(etcd)) as store:
        with pytest.raises(TransactionTooLarge, match="--max-txn-ops"):
            await store.transaction(
                [], [Put(THINGS.key(str(at)), at) for at in range(200)]
            )
        for length in (1_600_000, 3_000_000):
            with pytest.raises(TransactionTooLarge, match="--max-request-bytes"):
                await store.put(TEXTS.key("long"), "x" * length)
        assert await store.scan(THINGS) == []
        await store.transaction([], [Put(THINGS.key(str(at)), at) for at in range(126)])
        assert len(await store.scan(THINGS)) == 126


async def test_a_scan_reads_many_and_large_values_in_pages(etcd: EtcdMember) -> None:
    async with open_etcd(config_of(etcd)) as store:
        for page in range(11):
            await store.transaction(
                [], [Put(THINGS.key(f"{page:02}-{at:03}"), at) for at in range(100)]
            )
        found = await store.scan(THINGS)
        assert [each.value for _, each in found] == list(range(100)) * 11
        assert len(await store.scan(THINGS, limit=1050)) == 1050
        for at in range(14):
            await store.put(TEXTS.key(f"{at:02}"), str(at) * 600_000)
        texts = await store.scan(TEXTS)
        assert [each.value[-2:] for _, each in texts] == [
            (str(at) * 2)[-2:] for at in range(14)
        ]


# Security.


async def test_tls_with_client_certificates(tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    member = EtcdMember(
        tmp_path,
        cert_file=files["server"][0],
        key_file=files["server"][1],
        trusted_ca_file=files["ca"][0],
        client_cert_auth="true",
    )
    member.scheme = "https"
    secure = {
        "ca_file": str(files["ca"][0]),
        "certificate_file": str(files["client"][0]),
        "key_file": str(files["client"][1]),
    }
    try:
        member.start()
        member.wait()
        async with open_etcd(config_of(member, **secure)) as store:
            await store.put(ONE, 1)
            assert await value_of(store) == 1
        for given in ({}, {"ca_file": secure["ca_file"]}):
            with pytest.raises(MetadataUnavailable):
                async with open_etcd(config_of(member, timeout_s=1.0, **given)):
                    pass
    finally:
        member.kill()


async def test_users_with_passwords(tmp_path: Path) -> None:
    with etcd_member(tmp_path) as member:
        config = config_of(member, user="danube", password="open sesame")
        _enable_users(member, f"/danube/{config.cluster_name}/")
        async with open_etcd(config) as store, store.watch(THINGS) as watch:
            await anext(watch)
            await store.put(ONE, 1)
            await anext(watch)
            # Forgets all tokens.
            member.kill()
            member.start()
            member.wait()
            await store.put(ONE, 2)
            assert (await anext(watch)).values[ONE.path].value == 2
            async with store.open_session(10) as session:
                await store.transaction([], [Put(TWO, 2, session)])
        wrong = config_of(member, user="danube", password="something else")
        with pytest.raises(InvalidConfig, match="refuses the user or the password"):
            async with open_etcd(wrong):
                pass
        with pytest.raises(InvalidConfig, match="etcd requires a user"):
            async with open_etcd(config_of(member)):
                pass
        foreign = config_of(member, user="danube", password="open sesame")
        with pytest.raises(MetadataUnavailable, match="permission for the prefix"):
            async with open_etcd(foreign):
                pass


def _enable_users(member: EtcdMember, prefix: str) -> None:
    """Require users: root, and danube, who may use the keys below *prefix*."""
    member.ask("auth/user/add", name="root", password="root")
    member.ask("auth/user/grant", user="root", role="root")
    member.ask("auth/role/add", name="brokers")
    member.ask(
        "auth/role/grant",
        name="brokers",
        perm={
            "permType": "READWRITE",
            "key": encoded(prefix),
            "range_end": encoded(prefix[:-1] + "0"),
        },
    )
    member.ask("auth/user/add", name="danube", password="open sesame")
    member.ask("auth/user/grant", user="danube", role="brokers")
    ask(member.url, "auth/enable")
