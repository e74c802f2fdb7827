"""The API keys in the metadata store, and the copy of them that brokers verify with."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from pydanube.aio.tasks import task_scope
from pydanube.model.api_keys import ApiKeyDescription, NewApiKey
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RevisionConflict,
)
from pydanube.model.names import parse_client_name
from pydanube.model.positions import TIME_MAX
from pydanube.security.api_keys import ID_BYTES, SECRET_BYTES, ApiKey, make_key
from pydanube.security.credentials import GROUPS_MAX, parse_principal_name
from pydanube.security.principals import Principal
from pydanube.security.scram import ScramVerifier, make_verifier, salt_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ApiKeyRecord, ApiKeySecretRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Changes,
    MetadataStore,
    Stored,
    retry_on_conflict,
)

log = logging.getLogger(__name__)

NAMES_MAX = 10_000
"""The most names of API keys."""
SECRETS_MAX = 8
"""The most keys of one name that are valid at the same time."""

GRACE_S_MAX = 365 * 86_400.0
"""The longest time for which keys stay valid after a rotation."""


class _Known(NamedTuple):
    """A key that the broker verifies with."""

    name: str
    principal: Principal
    hash: str
    scram: ScramVerifier


class ApiKeys:
    """The API keys of a broker or a cluster; opened by ``open_api_keys``."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        wall_clock_us: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._random_bytes = random_bytes
        self._by_id: dict[str, _Known] = {}
        self._ids: dict[str, tuple[str, ...]] = {}

    # What the broker verifies with.

    def find(self, key: ApiKey, now_s: float) -> Principal | None:
        """Return the principal of *key*; None: the key is not or no longer valid."""
        known = self._by_id.get(key.key_id)
        # The hashes are compared in constant time; the id is public.
        if known is None or not key.has_hash(known.hash):
            return None
        return known.principal if self.has(key.key_id, now_s) else None

    def scram_verifiers(
        self, name: str, now_s: float
    ) -> list[tuple[str, Principal, ScramVerifier]]:
        """Return the ids, principals and verifiers of the valid keys of *name*."""
        found = [(each, self._by_id[each]) for each in self._ids.get(name, ())]
        return [
            (key_id, known.principal, known.scram)
            for key_id, known in found
            if self.has(key_id, now_s)
        ]

    def has(self, key_id: str, now_s: float) -> bool:
        """Return whether the key with this id is valid."""
        known = self._by_id.get(key_id)
        if known is None:
            return False
        expires_at_s = known.principal.expires_at_s
        return expires_at_s is None or now_s < expires_at_s

    def on_changes(self, changes: Changes[ApiKeyRecord]) -> None:
        """Take over changes of the metadata; a damaged key is not valid."""
        damaged = dict.fromkeys(changes.damaged)
        for path, stored in {**changes.values, **damaged}.items():
            name = keys.API_KEYS.name_of(path)
            for key_id in self._ids.pop(name, ()):
                self._by_id.pop(key_id, None)
            if stored is None:
                continue
            record = stored.value
            self._ids[name] = tuple(each.key_id for each in record.secrets)
            for each in record.secrets:
                self._by_id[each.key_id] = _Known(
                    name,
                    _principal_of(record, each),
                    each.hash,
                    ScramVerifier(each.scram_stored_key, each.scram_server_key),
                )

    # The operations of administrators.

    async def create(
        self,
        name: str,
        *,
        principal: str,
        groups: Sequence[str] = (),
        expires_at: int | None = None,
    ) -> NewApiKey:
        """
        Create a key.

        Durability: The hash of the key is in the metadata store.

        Raises:
            AlreadyExists: There is a key of this name.
            InvalidName: *name* is not a name.
            InvalidRequest: A name is not allowed, or the key would have expired.
            QuotaExceeded: There are ``NAMES_MAX`` names.
        """
        parse_client_name("API key", name)
        parse_principal_name("the principal", principal)
        if len(groups) > GROUPS_MAX:
            raise InvalidRequest(
                f"{len(groups)} groups: an API key has at most {GROUPS_MAX}"
            )
        for group in groups:
            parse_principal_name("a group", group)
        self._check_expiry(expires_at)
        if len(await self._store.paths(keys.API_KEYS)) >= NAMES_MAX:
            raise QuotaExceeded(
                f"there are {NAMES_MAX} API keys, as many as possible: revoke some"
            )
        key, secret = self._new_secret(name, expires_at)
        record = ApiKeyRecord(
            principal=principal, groups=tuple(groups), secrets=(secret,)
        )
        try:
            await self._store.put(keys.API_KEYS.key(name), record, expected=ABSENT)
        except RevisionConflict:
            raise AlreadyExists(
                f"there is an API key {name!r} already: choose another name, or rotate "
                "that key"
            ) from None
        return NewApiKey(key=key.text, description=_describe(name, record, secret))

    async def list(self) -> list[ApiKeyDescription]:
        """Return the keys that are valid, by name and age."""
        now = self._wall_clock_us()
        return [
            _describe(keys.API_KEYS.name_of(path), stored.value, each)
            for path, stored in await self._store.scan_valid(keys.API_KEYS)
            for each in _valid(stored.value, now)
        ]

    async def revoke(self, name: str) -> None:
        """
        Revoke all keys of *name*; connections that use them are closed soon.

        Raises:
            NotFound: There is no such key.
        """
        parse_client_name("API key", name)
        if not await self._store.delete(keys.API_KEYS.key(name)):
            raise _not_found(name)

    async def rotate(
        self, name: str, *, grace_s: float, expires_at: int | None = None
    ) -> NewApiKey:
        """
        Create another key of *name*; earlier ones expire after *grace_s*.

        Raises:
            InvalidRequest: *grace_s* is negative or more than ``GRACE_S_MAX``.
            NotFound: There is no such key.
            QuotaExceeded: *name* has ``SECRETS_MAX`` valid keys.
        """
        parse_client_name("API key", name)
        self._check_expiry(expires_at)
        if not 0 <= grace_s <= GRACE_S_MAX:
            raise InvalidRequest(
                f"the grace time is {grace_s:g} s; it is 0 to {GRACE_S_MAX:g} s"
            )
        grace_us = round(grace_s * 1_000_000)
        key, secret = self._new_secret(name, expires_at)

        async def attempt() -> NewApiKey:
            stored: Stored[ApiKeyRecord] | None
            stored = await self._store.get(keys.API_KEYS.key(name))
            if stored is None:
                raise _not_found(name)
            now = self._wall_clock_us()
            valid = tuple(_valid(stored.value, now)) if grace_us else ()
            if len(valid) >= SECRETS_MAX:
                raise QuotaExceeded(
                    f"the API key {name!r} has {len(valid)} valid keys, as many as "
                    "possible: wait until one expires, or revoke all of them"
                )
            ending = (_ending_at(each, now + grace_us) for each in valid)
            record = msgspec.structs.replace(stored.value, secrets=(*ending, secret))
            await self._store.put(
                keys.API_KEYS.key(name), record, expected=stored.revision
            )
            return NewApiKey(key=key.text, description=_describe(name, record, secret))

        return await retry_on_conflict(attempt)

    def _new_secret(
        self, name: str, expires_at: int | None
    ) -> tuple[ApiKey, ApiKeySecretRecord]:
        key = make_key(self._random_bytes(ID_BYTES + SECRET_BYTES))
        verifier = make_verifier(key.text, salt_of(name))
        return key, ApiKeySecretRecord(
            key_id=key.key_id,
            hash=key.hash,
            scram_stored_key=verifier.stored_key,
            scram_server_key=verifier.server_key,
            created_at=self._wall_clock_us(),
            expires_at=expires_at,
        )

    def _check_expiry(self, expires_at: int | None) -> None:
        if expires_at is None:
            return
        if expires_at <= self._wall_clock_us():
            raise InvalidRequest("the API key would have expired already")
        if expires_at > TIME_MAX:
            raise InvalidRequest(
                "the API key would expire after the year 9999: give an earlier time in "
                "microseconds since 1970, or none"
            )


@asynccontextmanager
async def open_api_keys(
    store: MetadataStore,
    *,
    wall_clock_us: Callable[[], int],
    random_bytes: Callable[[int], bytes],
) -> AsyncIterator[ApiKeys]:
    """Read the API keys in *store*, and follow their changes during the body."""
    api_keys = ApiKeys(store, wall_clock_us=wall_clock_us, random_bytes=random_bytes)
    async with store.watch(keys.API_KEYS) as changes:
        api_keys.on_changes(await anext(changes))

        async def follow() -> None:
            async for each in changes:
                api_keys.on_changes(each)

        async with task_scope() as tasks:
            tasks.run(follow(), "changes of API keys")
            yield api_keys


def _principal_of(record: ApiKeyRecord, secret: ApiKeySecretRecord) -> Principal:
    expires_at = secret.expires_at
    return Principal(
        record.principal,
        "api_key",
        record.groups,
        # A record may have any number, and no record may stop the broker.
        None if expires_at is None else min(expires_at, TIME_MAX) / 1_000_000,
    )


def _valid(record: ApiKeyRecord, now: int) -> Iterator[ApiKeySecretRecord]:
    for each in record.secrets:
        if each.expires_at is None or now < each.expires_at:
            yield each


def _ending_at(secret: ApiKeySecretRecord, at: int) -> ApiKeySecretRecord:
    ends = at if secret.expires_at is None else min(at, secret.expires_at)
    return msgspec.structs.replace(secret, expires_at=ends)


def _describe(
    name: str, record: ApiKeyRecord, secret: ApiKeySecretRecord
) -> ApiKeyDescription:
    return ApiKeyDescription(
        name=name,
        key_id=secret.key_id,
        principal=record.principal,
        groups=record.groups,
        created_at=secret.created_at,
        expires_at=secret.expires_at,
    )


def _not_found(name: str) -> NotFound:
    return NotFound(
        f"there is no API key {name!r}: list them with 'danube security keys list'"
    )
