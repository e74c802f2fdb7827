"""
Calls of etcd's gRPC API, at any of its members.

All calls go to one member.  When it does not answer, the client goes on to the next one
and stays there.  gRPC's own keepalive pings must not be more frequent than every six
seconds, or etcd closes the connection; so a member that hangs is found by the deadlines
of calls, and by requests of watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from pydanube.model.errors import Closed, MetadataUnavailable
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.attempts import Attempts
from pydanube_broker.metadata.etcd.config import Endpoint, EtcdConfig, parse_endpoints
from pydanube_broker.metadata.etcd.failures import NoAnswer, StaleToken, failure_of
from pydanube_broker.metadata.etcd.members import Members

log = logging.getLogger(__name__)

A = TypeVar("A")

MIB = 1024 * 1024

RECEIVE_BYTES_MAX = 16 * MIB
"""The maximum size of an answer."""

_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A repeated change must not be executed twice; the writer decides about that.
    ("grpc.enable_retries", 0),
    # Stores do not share connections, nor their failures.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

HEALTH = "/grpc.health.v1.Health/Check"
"""A method that a member answers without other members, and without a token."""
CHECK_S = 0.3
"""How long the answer may take."""
_NOT_THERE = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}

_HAS_LEADER = ("hasleader", "true")
"""Ends a stream when the member has lost contact with the leader."""


@dataclass(frozen=True, slots=True)
class Method(Generic[A]):
    """A method of etcd's API."""

    path: str
    answer: type[A]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
PUT = Method("/etcdserverpb.KV/Put", pb.PutResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse
)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


@asynccontextmanager
async def open_client(config: EtcdConfig) -> AsyncIterator[EtcdClient]:
    """
    Open a client; it connects with the first call.

    Raises:
        InvalidConfig: There are no endpoints, or a file cannot be read.
    """
    endpoints = parse_endpoints(config.endpoints)
    if not endpoints:
        raise config.missing_endpoints()
    credentials = _credentials_of(config)
    client = EtcdClient(
        endpoints,
        [_channel(each, credentials) for each in endpoints],
        timeout_s=config.timeout_s,
        user=config.user,
        password=config.read_password(),
    )
    try:
        yield client
    finally:
        await client.close()


class EtcdClient:
    """A client of all members of etcd; opened by ``open_client``."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        channels: list[grpc.aio.Channel],
        *,
        timeout_s: float,
        user: str,
        password: str,
    ) -> None:
        self.revision = 0
        """The highest revision that etcd has been seen to have."""
        self.is_closed = False
        self._endpoints = endpoints
        self._channels = channels
        self._members = Members(len(channels))
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._user = user
        self._password = password
        self._token: str | None = None
        self._login = asyncio.Lock()
        self._failures: dict[int, str] = {}
        """Why the last call of each member that did not answer failed."""

    async def close(self) -> None:
        """Close all connections."""
        self.is_closed = True
        for channel in self._channels:
            await channel.close()

    def new_attempts(self) -> Attempts:
        """Return the attempts for one operation, which begins now."""
        return Attempts(self._loop.time(), self._timeout_s, len(self._channels))

    async def ask(
        self, method: Method[A], request: Any, attempts: Attempts | None = None
    ) -> A:
        """
        Return the answer to *request*, which may be executed several times.

        Raises:
            MetadataUnavailable: No member has answered.
            LeaseNotFound, Compacted, AnswerTooLarge, TransactionTooLarge,
                InvalidConfig: See failures.
        """
        attempts = attempts or self.new_attempts()
        while True:
            try:
                return await self.ask_once(method, request, attempts)
            except NoAnswer:
                await self.pause(attempts)

    async def ask_once(self, method: Method[A], request: Any, attempts: Attempts) -> A:
        """
        Send *request* to one member, and return the answer.

        Raises: As ``ask``, and
            NoAnswer: It is unknown whether the member executes the request.
        """
        attempt_s = attempts.attempt_s(self._loop.time())
        if not attempt_s:
            raise self.unavailable()
        try:
            return await self._call(method, request, attempt_s)
        except StaleToken:
            self._token = None
        try:
            return await self._call(method, request, attempt_s)
        except StaleToken as error:
            raise NoAnswer(str(error)) from error

    async def pause(self, attempts: Attempts) -> None:
        """
        Count a failure, and wait until the next attempt is due.

        Raises:
            MetadataUnavailable: There is no time for another attempt.
        """
        attempts.on_failure()
        pause_s = attempts.pause_s()
        if self._loop.time() + pause_s >= attempts.deadline:
            raise self.unavailable()
        await asyncio.sleep(pause_s)

    def unavailable(self) -> MetadataUnavailable:
        """Return the error for an operation that no member has answered."""
        reasons = "; ".join(
            f"{self._endpoints[member]}: {reason}"
            for member, reason in sorted(self._failures.items())
        )
        return MetadataUnavailable(
            "etcd does not answer; start it, or correct metadata.etcd.endpoints "
            f"({reasons or 'no member has answered in time'})"
        )

    async def _find_member(self) -> int:
        """
        Return the member for the next call.

        After a failure, a member must first answer a health check, which needs no
        leader.  Otherwise calls could go on to a leader that hangs, because all other
        members refuse them until they have elected a new one.
        """
        for _ in self._channels:
            member = self._members.present
            if self._members.is_known or await self._check(member):
                break
        return self._members.present

    async def _check(self, member: int) -> bool:
        """Return whether a member answers; if not, give the next calls to another."""
        check: Any = self._channels[member].unary_unary(HEALTH)
        try:
            await check(b"", timeout=CHECK_S)
        except grpc.aio.AioRpcError as error:
            if error.code() in _NOT_THERE:
                self.failed(member, error)
                return False
        self._members.on_answer(member)
        return True

    def leave(self, member: int, reason: str, *, is_silent: bool) -> None:
        """Give the next calls to another member, because *member* did not answer."""
        has_left = self._members.leave(member, self._loop.time(), is_silent=is_silent)
        if has_left and member not in self._failures:
            log.warning(
                "etcd at %s does not answer: %s; continuing with %s",
                self._endpoints[member],
                reason,
                self._endpoints[self._members.present],
            )
        self._failures[member] = reason

    def note(self, member: int, revision: int) -> None:
        """Note that *member* has answered, with this revision of the store."""
        self._members.on_answer(member)
        if self._failures.pop(member, None) is not None:
            log.info("etcd at %s answers again", self._endpoints[member])
        self.revision = max(self.revision, revision)

    async def keep_alive(self, lease_id: int, timeout_s: float) -> int:
        """
        Renew a lease, and return its TTL in seconds; 0: there is no such lease.

        Raises:
            NoAnswer: The lease may have been renewed or not.
        """
        request = pb.LeaseKeepAliveRequest(ID=lease_id)
        async with self.streaming(
            LEASE_KEEP_ALIVE, [request], timeout_s=timeout_s
        ) as stream:
            async for answer in stream.answers():
                return int(answer.TTL)
        raise NoAnswer("the stream of keepalives ended")

    @asynccontextmanager
    async def streaming(
        self,
        method: Method[A],
        requests: Iterable[Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Stream[A]]:
        """
        Open a stream to one member: of *requests*, or of those written later.

        Raises:
            NoAnswer: The member did not answer when a token was requested.
        """
        self._check_open()
        member = await self._find_member()
        metadata = await self._metadata(member, timeout_s or self._timeout_s)
        call: Any = self._channels[member].stream_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,  # type: ignore[attr-defined]
        )(
            None if requests is None else iter(requests),
            timeout=timeout_s,
            metadata=[*metadata, _HAS_LEADER],
        )
        try:
            yield Stream(self, member, call)
        finally:
            call.cancel()

    async def _call(self, method: Method[A], request: Any, timeout_s: float) -> A:
        self._check_open()
        member = await self._find_member()
        metadata = await self._metadata(member, timeout_s)
        return await self._call_member(member, method, request, timeout_s, metadata)

    async def _call_member(
        self,
        member: int,
        method: Method[A],
        request: Any,
        timeout_s: float,
        metadata: list[tuple[str, str]],
    ) -> A:
        call: Any = self._channels[member].unary_unary(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,  # type: ignore[attr-defined]
        )
        try:
            answer: Any = await call(request, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self.failed(member, error) from error
        self.note(member, answer.header.revision)
        return answer  # type: ignore[no-any-return]

    def failed(self, member: int, error: grpc.aio.AioRpcError) -> Exception:
        """Return the exception for a call of *member* that failed with *error*."""
        failure = failure_of(error.code().name, error.details() or "")
        if isinstance(failure, NoAnswer):
            is_silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            self.leave(member, str(failure), is_silent=is_silent)
        if isinstance(failure, StaleToken):
            self._token = None
        return failure

    async def _metadata(self, member: int, timeout_s: float) -> list[tuple[str, str]]:
        """Return the metadata of a call; logs in if there is no token."""
        if not self._user:
            return []
        async with self._login:
            if self._token is None:
                request = pb.AuthenticateRequest(
                    name=self._user, password=self._password
                )
                answer = await self._call_member(
                    member, AUTHENTICATE, request, timeout_s, []
                )
                self._token = answer.token
            return [("token", self._token)]

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the metadata store is closed")


class Stream(Generic[A]):
    """A stream to one member."""

    def __init__(self, client: EtcdClient, member: int, call: Any) -> None:
        self.member = member
        self._client = client
        self._call = call

    async def write(self, request: Any) -> None:
        """
        Send *request*.

        Raises: As ``answers``.
        """
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._client.failed(self.member, error) from error
        except asyncio.InvalidStateError as error:
            raise NoAnswer("the stream has ended") from error

    def give_up(self, reason: str) -> None:
        """Give the next calls to another member, because this one is silent."""
        self._client.leave(self.member, reason, is_silent=True)

    async def answers(self) -> AsyncIterator[Any]:
        """
        Yield the answers, until the member ends the stream.

        Raises: As ``EtcdClient.ask_once``.
        """
        try:
            async for answer in self._call:
                self._client.note(self.member, answer.header.revision)
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._client.failed(self.member, error) from error


def _serialize(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


def _credentials_of(config: EtcdConfig) -> grpc.ChannelCredentials:
    def read(setting: str) -> bytes | None:
        return config.read_file(setting) if getattr(config, setting) else None

    return grpc.ssl_channel_credentials(
        read("ca_file"), read("key_file"), read("certificate_file")
    )


def _channel(
    endpoint: Endpoint, credentials: grpc.ChannelCredentials
) -> grpc.aio.Channel:
    if endpoint.is_secure:
        return grpc.aio.secure_channel(endpoint.address, credentials, _OPTIONS)
    return grpc.aio.insecure_channel(endpoint.address, _OPTIONS)
