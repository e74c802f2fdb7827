"""The lifespan of an ASGI application, with a broker in this process."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

import pydanube
import pydanube.asgi
from support.drivers.running import TOPIC, published


@pytest.fixture
async def app(broker, monkeypatch):
    monkeypatch.setattr(
        pydanube.asgi, "connect", lambda url, **options: broker.connect(**options)
    )
    return SimpleNamespace(state=SimpleNamespace())


async def test_without_workers_there_is_only_a_client(app):
    async with pydanube.asgi.lifespan(close_timeout_s=3)(app):
        assert app.state.danube.requester.close_timeout_s == 3
        assert app.state.danube_workers is None
    with pytest.raises(pydanube.Closed):
        await app.state.danube.topics.list()


async def test_readers_that_follow_end_when_the_server_is_told_to_end(app, client):
    await published(client, b"0", b"1")
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    try:
        async with pydanube.asgi.lifespan()(app):
            batches = app.state.danube.read(TOPIC, follow=True)
            first = await anext(batches)
            signal.raise_signal(signal.SIGTERM)
            rest = [batch async for batch in batches]
        assert numbers == [signal.SIGTERM]
        assert sum(map(len, [first, *rest])) == 2
        signal.raise_signal(signal.SIGTERM)
        assert len(numbers) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_the_failure_of_a_worker_is_visible_and_ends_the_lifespan(app, client):
    await published(client, b"0")
    workers = pydanube.Workers()

    @workers.worker(TOPIC, subscription="s", name="w")
    async def work(message): ...

    running = pydanube.asgi.lifespan(workers=workers)(app)
    await running.__aenter__()
    assert app.state.danube_workers.failure is None
    await client.topics.delete(TOPIC, force=True)
    await app.state.danube_workers.wait()
    assert isinstance(app.state.danube_workers.failure, pydanube.TopicNotFound)
    with pytest.raises(pydanube.TopicNotFound):
        await running.__aexit__(None, None, None)


async def test_a_worker_without_its_namespace_prevents_the_start(app):
    workers = pydanube.Workers()

    @workers.worker("/missing/orders", subscription="s")
    async def work(message): ...

    with pytest.raises(pydanube.NamespaceNotFound):
        async with pydanube.asgi.lifespan(workers=workers)(app):
            pass
