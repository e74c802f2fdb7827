"""API keys in the metadata store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count

import pytest

from pydanube.model.errors import InvalidRequest, NotFound, QuotaExceeded
from pydanube.model.positions import TIME_MAX
from pydanube.security.api_keys import parse_key
from pydanube.security.credentials import GROUPS_MAX
from pydanube.security.principals import Principal
from pydanube_broker.broker.governance.api_keys import SECRETS_MAX, open_api_keys
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ApiKeyRecord, ApiKeySecretRecord
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

SECOND = 1_000_000


class World:
    """Brokers that share a metadata store and a clock."""

    def __init__(self):
        self.store = MemoryStore()
        self.now = 1000 * SECOND
        self._numbers = count()

    @asynccontextmanager
    async def broker(self):
        async with open_api_keys(
            self.store,
            wall_clock_us=lambda: self.now,
            random_bytes=lambda size: bytes([next(self._numbers)]) * size,
        ) as api_keys:
            yield api_keys

    def find(self, api_keys, text):
        """The principal of the key *text*."""
        return api_keys.find(parse_key(text), self.now / SECOND)


@pytest.fixture
def world():
    return World()


@pytest.fixture
async def api_keys(world):
    async with world.broker() as api_keys:
        yield api_keys


async def test_a_key_is_that_of_its_principal(world, api_keys):
    created = await api_keys.create("k", principal="alice", groups=["a", "b"])
    await until(lambda: world.find(api_keys, created.key))
    found = world.find(api_keys, created.key)
    assert found == Principal("alice", "api_key", ("a", "b"))
    assert repr(created).count(created.key) == 0


async def test_a_key_with_another_secret_is_unknown(world, api_keys):
    created = await api_keys.create("k", principal="alice")
    await until(lambda: world.find(api_keys, created.key))
    last = "A" if created.key[-1] != "A" else "B"
    assert world.find(api_keys, created.key[:-1] + last) is None


async def test_only_a_hash_of_the_key_is_stored(world, api_keys):
    created = await api_keys.create("k", principal="alice")
    stored = await world.store.get(keys.API_KEYS.key("k"))
    [secret] = stored.value.secrets
    assert secret.hash == parse_key(created.key).hash
    assert created.key not in repr(stored)


async def test_a_key_expires(world, api_keys):
    at = world.now + 5 * SECOND
    created = await api_keys.create("k", principal="alice", expires_at=at)
    await until(lambda: world.find(api_keys, created.key))
    world.now = at - 1
    assert world.find(api_keys, created.key).expires_at_s == at / SECOND
    world.now = at
    assert world.find(api_keys, created.key) is None
    assert not api_keys.has(created.description.key_id, world.now / SECOND)
    assert await api_keys.list() == []
    with pytest.raises(InvalidRequest, match="expired already"):
        await api_keys.create("k2", principal="alice", expires_at=at)


async def test_a_key_expires_within_the_times_that_the_broker_has(world, api_keys):
    for at in (TIME_MAX + 1, 10**400):
        with pytest.raises(InvalidRequest, match="after the year 9999"):
            await api_keys.create("k", principal="alice", expires_at=at)
    created = await api_keys.create("k", principal="alice", expires_at=TIME_MAX)
    await until(lambda: world.find(api_keys, created.key))


async def test_a_record_with_a_far_expiry_does_not_end_the_others(world, api_keys):
    secret = ApiKeySecretRecord(
        key_id="0",
        hash="",
        scram_stored_key=b"",
        scram_server_key=b"",
        created_at=0,
        expires_at=10**400,
    )
    record = ApiKeyRecord(principal="alice", groups=(), secrets=(secret,))
    await world.store.put(keys.API_KEYS.key("far"), record)
    created = await api_keys.create("k", principal="alice")
    await until(lambda: world.find(api_keys, created.key))


async def test_other_brokers_learn_of_new_and_revoked_keys(world, api_keys):
    async with world.broker() as other:
        created = await api_keys.create("k", principal="alice")
        await until(lambda: world.find(other, created.key))
        await other.revoke("k")
        await until(lambda: world.find(api_keys, created.key) is None)
        with pytest.raises(NotFound, match="no API key 'k'"):
            await api_keys.revoke("k")


async def test_keys_are_there_after_a_restart(world):
    async with world.broker() as api_keys:
        created = await api_keys.create("k", principal="alice")
    async with world.broker() as api_keys:
        assert world.find(api_keys, created.key).name == "alice"


async def test_rotation_ends_earlier_keys_after_the_grace_time(world, api_keys):
    at = world.now + 3 * SECOND
    first = await api_keys.create("k", principal="alice", expires_at=at)
    second = await api_keys.rotate("k", grace_s=10)
    third = await api_keys.rotate("k", grace_s=5)
    texts = [each.key for each in (first, second, third)]
    await until(lambda: world.find(api_keys, third.key))

    def valid():
        return [world.find(api_keys, each) is not None for each in texts]

    assert valid() == [True, True, True]
    # The grace time does not prolong the life of a key.
    world.now += 3 * SECOND
    assert valid() == [False, True, True]
    world.now += 2 * SECOND
    assert valid() == [False, False, True]


async def test_rotation_without_grace_ends_earlier_keys(world, api_keys):
    first = await api_keys.create("k", principal="alice")
    second = await api_keys.rotate("k", grace_s=0)
    await until(lambda: world.find(api_keys, second.key))
    assert world.find(api_keys, first.key) is None


async def test_the_number_of_keys_of_a_name_is_bounded(world, api_keys):
    await api_keys.create("k", principal="alice")
    for _ in range(SECRETS_MAX - 1):
        await api_keys.rotate("k", grace_s=1)
    with pytest.raises(QuotaExceeded, match=f"{SECRETS_MAX} valid keys"):
        await api_keys.rotate("k", grace_s=1)
    world.now += SECOND
    await api_keys.rotate("k", grace_s=1)
    assert len(await api_keys.list()) == 2


async def test_the_number_of_groups_is_bounded(api_keys):
    groups = [f"g{n}" for n in range(GROUPS_MAX + 1)]
    with pytest.raises(InvalidRequest, match="at most"):
        await api_keys.create("k", principal="alice", groups=groups)
