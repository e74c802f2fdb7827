"""Sessions have the identity of their users, and end."""

import pytest

from pydanube.model.errors import ConnectionLost, QuotaExceeded
from pydanube_console.sessions import IDLE_MAX_S, SESSIONS_MAX, open_sessions
from support.worlds.current import memory_broker


async def test_session_is_found_by_its_key_until_it_ends():
    async with memory_broker() as broker, open_sessions(broker.url) as sessions:
        session = await sessions.open()
        assert sessions.find(session.key) is session
        assert sessions.find("other") is None
        assert session.key not in repr(session)
        assert await session.client.topics.list() == []
        sessions.close(session)
        assert sessions.find(session.key) is None
        assert not session.is_open


async def test_idle_sessions_end():
    async with memory_broker() as broker, open_sessions(broker.url) as sessions:
        idle, used = await sessions.open("one"), await sessions.open("two")
        idle.used_at -= IDLE_MAX_S + 1
        sessions.close_idle()
        assert (idle.is_open, used.is_open) == (False, True)


async def test_users_without_credentials_share_a_session():
    async with memory_broker() as broker, open_sessions(broker.url) as sessions:
        session = await sessions.open()
        assert await sessions.open() is session
        sessions.close(session)
        assert await sessions.open() is not session


async def test_sessions_are_bounded():
    async with memory_broker() as broker, open_sessions(broker.url) as sessions:
        for number in range(SESSIONS_MAX):
            await sessions.open(f"token-{number}")
        with pytest.raises(QuotaExceeded, match="sign out"):
            await sessions.open("one-more")


async def test_error_of_the_broker_reaches_the_user():
    async with open_sessions("danube://127.0.0.1:1") as sessions:
        with pytest.raises(ConnectionLost):
            await sessions.open()
