"""A metadata store in etcd whose members hang, die, compact, and check who calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pydanube.model.errors import (
    InvalidConfig,
    MetadataUnavailable,
    TransactionTooLarge,
)
from pydanube_broker.metadata.etcd.store import open_etcd
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.store import Put
from support.servers.certificates import write_certificates
from support.servers.etcd import (
    EtcdMember,
    ask,
    config_of,
    encoded,
    etcd_cluster,
    etcd_member,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore

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
