"""
The authentication of clients on all listeners.

Each listener passes what a client presented: the credentials of a handshake or of the
headers of a request, or its verified certificate.  Credentials that a client sends
count, and its certificate counts if it sends none.  Verification does not wait, so no
client occupies memory while the broker waits for another server.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from pydanube.model.errors import (
    InvalidRequest,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from pydanube.objects.store import wall_clock_us
from pydanube.security.api_keys import KEY_PREFIX, parse_key
from pydanube.security.certificates import principal_of_certificate
from pydanube.security.credentials import BOOTSTRAP, check_credential
from pydanube.security.failed_attempts import FailedAttempts
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.scram import ScramChallenge
from pydanube.security.tokens import UnknownKey, verify_token
from pydanube_broker.broker.governance.api_keys import ApiKeys, open_api_keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.connections.bootstrap_key import (
    BootstrapKey,
    open_bootstrap_key,
)
from pydanube_broker.servers.connections.issuer_keys import (
    IssuerKeySource,
    open_issuer_keys,
)
from pydanube_broker.servers.settings.security_config import SecurityConfig

log = logging.getLogger(__name__)

VERIFIED_TOKENS_MAX = 10_000
"""The most tokens whose verification is remembered."""

NO_CREDENTIALS = (
    "this broker needs credentials: connect with an API key or a token, in Python with "
    "connect(api_key=...), on the command line with the variable DANUBE_API_KEY, over "
    "HTTP and gRPC with the header 'authorization: Bearer ...' or 'x-api-key: ...'"
)


class OnFailure(Protocol):
    """Is told of refused credentials."""

    def __call__(self, *, address: str, listener: str, reason: str) -> None:
        """Handle that the credentials of a client at *address* were refused."""


class ClientIdentity(NamedTuple):
    """The principal of a client, and the id of its API key, if it has one."""

    principal: Principal
    key_id: str = ""


NOBODY = ClientIdentity(ANONYMOUS)
"""The identity of all clients of a broker without security."""


class Authenticator:
    """
    Verifies credentials as the settings say.

    Bounds: It remembers ``VERIFIED_TOKENS_MAX`` tokens, by their hashes.
    """

    def __init__(
        self,
        config: SecurityConfig,
        *,
        bootstrap: BootstrapKey | None = None,
        issuer_keys: IssuerKeySource | None = None,
        wall_clock_us: Callable[[], int] = wall_clock_us,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        # None while the broker is starting.
        self._api_keys: ApiKeys | None = None
        self.failures = FailedAttempts()
        self.failed_count: Counter[str] = Counter()
        """Failed attempts: api_key, token, certificate, none or limited."""
        self._on_failure: OnFailure = _ignore
        self._bootstrap = bootstrap
        self._issuer_keys = issuer_keys
        self._wall_clock_us = wall_clock_us
        self._clock = clock
        self._tokens: dict[bytes, Principal] = {}
        self._tokens_generation = 0

    @property
    def is_enabled(self) -> bool:
        """Whether clients need credentials."""
        return self.config.enabled

    def on_serving(self, api_keys: ApiKeys, on_failure: OnFailure) -> None:
        """
        Take the API keys of the broker, which has started.

        *on_failure* is called for refused credentials; the broker adds them to its
        audit log.
        """
        self._api_keys = api_keys
        self._on_failure = on_failure

    def authenticate(
        self,
        credential: str,
        address: str,
        certificate: Any = None,
        *,
        listener: str = "stream",
    ) -> ClientIdentity:
        """
        Return the identity that *credential* or *certificate* proves.

        Args:
            credential: A token or an API key; empty: none.
            address: The client's, for the limit of failed attempts.
            certificate: The verified certificate of the client, as ``ssl`` describes
                it; None: none.
            listener: For the audit log: ``stream``, ``grpc``, ``admin``, ``http`` or
                ``mqtt``.

        Raises:
            Unauthenticated: The credentials are missing or not valid.
            QuotaExceeded: Too many attempts from *address* have failed.
            Unavailable: The broker is starting, or does not know the issuer's keys yet.
        """
        if not self.is_enabled:
            return NOBODY
        if not credential:
            return self._of_certificate(certificate)
        is_key = credential.startswith(KEY_PREFIX)
        with self._attempt(address, listener, "api_key" if is_key else "token"):
            check_credential(credential)
            if is_key:
                return self._of_api_key(credential)
            return ClientIdentity(self._of_token(credential))

    def authenticate_scram(
        self, challenge: ScramChallenge, message: bytes, address: str, *, listener: str
    ) -> tuple[ClientIdentity, bytes]:
        """
        Return the identity that the last message of SCRAM proves, and the answer.

        Raises: As ``authenticate``; also Unauthenticated without security.
        """
        if not self.is_enabled:
            raise Unauthenticated(
                "this broker has no security, and so no keys that SCRAM could compare: "
                "connect without SASL"
            )
        with self._attempt(address, listener, "api_key"):
            if not self.config.api_keys:
                raise Unauthenticated(
                    "this broker accepts no API keys (security.api_keys)"
                )
            if self._api_keys is None:
                raise Unavailable("the broker is starting")
            found = self._api_keys.scram_verifiers(challenge.start.user, self._now_s())
            index, answer = challenge.verify(message, [each for *_, each in found])
            key_id, principal, _ = found[index]
            return ClientIdentity(principal, key_id), answer

    @contextmanager
    def _attempt(self, address: str, listener: str, kind: str) -> Iterator[None]:
        """Verify credentials in the body; count it if they are refused."""
        now = self._clock()
        wait_s = self.failures.wait_s(address, now)
        if wait_s > 0:
            self.failed_count["limited"] += 1
            raise QuotaExceeded(
                f"too many attempts from {address} to authenticate have failed: try "
                f"again in {wait_s:.0f} s"
            )
        try:
            yield
        except Unauthenticated as error:
            self.failures.add(address, now)
            self.failed_count[kind] += 1
            log.info("refusing the credentials of %s: %s", address, error)
            self._on_failure(address=address, listener=listener, reason=str(error))
            raise

    def is_valid(self, identity: ClientIdentity) -> bool:
        """Return whether *identity*, which was verified before, still holds."""
        principal, key_id = identity
        now_s = self._now_s()
        if principal.expires_at_s is not None and now_s >= principal.expires_at_s:
            return False
        if not key_id or principal.name == BOOTSTRAP:
            return True
        return self._api_keys is not None and self._api_keys.has(key_id, now_s)

    def why_invalid(self, identity: ClientIdentity) -> Unauthenticated:
        """Return the error for a client whose identity holds no longer."""
        what = {
            "api_key": "the API key was revoked or has expired",
            "token": "the token has expired",
            "certificate": "the certificate of the client has expired",
        }.get(identity.principal.method, "the credentials are no longer valid")
        return Unauthenticated(f"{what}: connect again with valid credentials")

    def managed_api_keys(self, principal: Principal) -> ApiKeys:
        """
        Return the API keys for *principal* to manage; only superusers may.

        Raises:
            InvalidRequest: The broker needs no credentials.
            PermissionDenied: *principal* is no superuser.
            Unavailable: The broker is starting.
        """
        if not self.is_enabled:
            raise InvalidRequest(
                "this broker uses no API keys: set security.enabled in its settings"
            )
        if not self.config.is_superuser(principal):
            raise PermissionDenied(
                f"{principal.name!r} may not manage API keys: the principals in "
                "security.superusers may, and the key in security.bootstrap_key_file"
            )
        if self._api_keys is None:
            raise Unavailable("the broker is starting")
        return self._api_keys

    def expires_in_s(self, identity: ClientIdentity) -> float:
        """Return for how long *identity* holds; 0: it does not expire."""
        expires_at_s = identity.principal.expires_at_s
        if expires_at_s is None:
            return 0.0
        return max(0.001, expires_at_s - self._now_s())

    def _now_s(self) -> float:
        return self._wall_clock_us() / 1_000_000

    def _of_certificate(self, certificate: Any) -> ClientIdentity:
        if not certificate or not self.config.certificates:
            self.failed_count["none"] += 1
            raise Unauthenticated(NO_CREDENTIALS)
        expires_at_s = float(ssl.cert_time_to_seconds(certificate["notAfter"]))
        try:
            return ClientIdentity(principal_of_certificate(certificate, expires_at_s))
        except Unauthenticated:
            self.failed_count["certificate"] += 1
            raise

    def _of_api_key(self, credential: str) -> ClientIdentity:
        key = parse_key(credential)
        if key is None:
            raise Unauthenticated(
                "the API key is malformed: compare it with the one created"
            )
        if self._bootstrap is not None and self._bootstrap.is_key(key):
            return ClientIdentity(Principal(BOOTSTRAP, "api_key"), key.key_id)
        if not self.config.api_keys:
            raise Unauthenticated("this broker accepts no API keys (security.api_keys)")
        if self._api_keys is None:
            raise Unavailable("the broker is starting")
        principal = self._api_keys.find(key, self._now_s())
        if principal is None:
            raise Unauthenticated(
                f"the API key with the id {key.key_id} is unknown, was revoked, or has "
                "expired"
            )
        return ClientIdentity(principal, key.key_id)

    def _of_token(self, token: str) -> Principal:
        source = self._issuer_keys
        if source is None:
            raise Unauthenticated(
                "this broker accepts no tokens (security.jwt.issuer), and the "
                "credentials are no API key"
            )
        keys = source.get()
        if source.generation != self._tokens_generation:
            # A key may have been withdrawn.
            self._tokens.clear()
            self._tokens_generation = source.generation
        now_s = self._now_s()
        digest = sha256(token.encode()).digest()
        known = self._tokens.get(digest)
        if known is not None:
            assert known.expires_at_s is not None
            if now_s < known.expires_at_s:
                return known
        try:
            principal = verify_token(token, keys, self.config.jwt.rules, now_s)
        except UnknownKey:
            if source.refresh_soon():
                raise Unavailable(
                    "the token is signed with a new key of the issuer, which the "
                    "broker is fetching: try again"
                ) from None
            raise Unauthenticated(
                "the token is signed with a key that is not one of the issuer's keys"
            ) from None
        if len(self._tokens) >= VERIFIED_TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[digest] = principal
        return principal


def _ignore(*, address: str, listener: str, reason: str) -> None:
    """Do nothing."""


def certificate_of(transport: Any) -> Any:
    """Return the verified certificate of the peer of *transport*; None: none."""
    tls = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert()


@asynccontextmanager
async def open_authenticator(config: SecurityConfig) -> AsyncIterator[Authenticator]:
    """
    Open the authenticator of a broker; ``verifying_api_keys`` gives it the API keys.

    Raises:
        InvalidConfig: A file with keys cannot be used.
    """
    if not config.enabled:
        yield Authenticator(config)
        return
    async with open_issuer_keys(config.jwt) as issuer_keys:
        yield Authenticator(
            config,
            bootstrap=open_bootstrap_key(config.bootstrap_key_file),
            issuer_keys=issuer_keys,
        )


@asynccontextmanager
async def verifying_api_keys(
    authenticator: Authenticator,
    store: MetadataStore,
    *,
    wall_clock_us: Callable[[], int],
    on_failure: OnFailure = _ignore,
) -> AsyncIterator[None]:
    """
    Verify API keys by the metadata in *store* during the body.

    *on_failure* is told of refused credentials.
    """
    if not authenticator.is_enabled:
        yield
        return
    async with open_api_keys(
        store, wall_clock_us=wall_clock_us, random_bytes=secrets.token_bytes
    ) as api_keys:
        authenticator.on_serving(api_keys, on_failure)
        yield
