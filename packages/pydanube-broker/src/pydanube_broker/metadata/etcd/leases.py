"""Sessions as leases of etcd, which a task keeps alive."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.attempts import Attempts
from pydanube_broker.metadata.etcd.client import LEASE_GRANT, LEASE_REVOKE, EtcdClient
from pydanube_broker.metadata.etcd.failures import LeaseNotFound, NoAnswer
from pydanube_broker.metadata.keepalive_thread import extend, has_stalled
from pydanube_broker.metadata.sessions import Session, boot_clock

log = logging.getLogger(__name__)

KEEPALIVES_PER_TTL = 3
"""A session survives the loss of all keepalives but one within its TTL."""

RETRY_S = 0.1

_CLOSE_TIMEOUT_S = 2.0


@asynccontextmanager
async def open_lease(
    client: EtcdClient, ttl_s: float, clock: Callable[[], float] = boot_clock
) -> AsyncIterator[Session]:
    """
    Open a session that is a lease, and keep it alive; see MetadataStore.open_session.

    The id of the session is the id of the lease, in hexadecimal digits.
    """
    sent_at = clock()
    request = pb.LeaseGrantRequest(TTL=math.ceil(ttl_s))
    answer = await client.ask(LEASE_GRANT, request)
    session = Session(
        f"{answer.ID:x}",
        valid_until=sent_at + answer.TTL,
        ttl_s=answer.TTL,
        clock=clock,
    )
    async with task_scope() as tasks:
        tasks.run(
            _keep_alive(client, session, answer.ID, answer.TTL, clock),
            "keep a session alive",
        )
        try:
            yield session
        finally:
            tasks.cancel()
            session.end()
            await _revoke(client, answer.ID)


async def _keep_alive(
    client: EtcdClient,
    session: Session,
    lease_id: int,
    ttl_s: float,
    clock: Callable[[], float],
) -> None:
    """Renew the lease until the session is lost, and then say so."""
    interval_s = ttl_s / KEEPALIVES_PER_TTL
    pause_s = interval_s
    try:
        while True:
            await asyncio.sleep(min(pause_s, session.remaining_s))
            if session.is_lost or has_stalled(session):
                break
            sent_at = clock()
            try:
                renewed_s = await client.keep_alive(
                    lease_id, min(interval_s, session.remaining_s)
                )
            except (NoAnswer, BrokerError) as error:
                log.warning("a keepalive of session %x failed: %s", lease_id, error)
                pause_s = RETRY_S
                continue
            if renewed_s <= 0:
                break
            extend(session, sent_at + renewed_s)
            pause_s = interval_s
    finally:
        is_new = session.end()
    if is_new:
        log.error("session %x of the metadata store is lost", lease_id)


async def _revoke(client: EtcdClient, lease_id: int) -> None:
    attempts = Attempts(asyncio.get_running_loop().time(), _CLOSE_TIMEOUT_S, 1)
    request = pb.LeaseRevokeRequest(ID=lease_id)
    try:
        await client.ask(LEASE_REVOKE, request, attempts)
    except LeaseNotFound:
        return
    except BrokerError as error:
        log.warning("the keys of a session stay until its TTL has passed: %s", error)
