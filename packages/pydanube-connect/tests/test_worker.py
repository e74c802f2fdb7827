"""Workers share the connectors that a broker stores."""

from __future__ import annotations

import asyncio
import json

import pytest

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import SubscriptionNotFound
from pydanube.model.stored_connectors import WORKERS_TOPIC
from pydanube.security.principals import Principal
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.worker import LOCK_PREFIX, ConnectorWorker
from support.fakes.principals import ROOT, client_of, guarded_broker, token_of
from support.worlds.current import memory_broker

TIMEOUT_S = 60
TOPIC = "/default/numbers"
AUTHOR = Principal("author", "token")
WORKER = Principal("worker", "token")


def definition(topic=TOPIC, **options):
    return json.dumps({"kind": "generator-source", "topic": topic, "options": options})


async def eventually(condition):
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


class Shop:
    """A broker, and workers that run in this process."""

    def __init__(self, client, url, tasks, directory):
        self.connectors = client.connectors
        self.client = client
        self._url = url
        self._tasks = tasks
        self._directory = directory
        self._workers = []

    def start(self, name, environment=None):
        runs = ConnectorRuns([], lambda _: None, is_open=True)
        worker = ConnectorWorker(
            name,
            runs,
            broker=self._url,
            directory=self._directory,
            environment=environment or {},
            poll_s=0.05,
            recheck_s=0.2,
            absent_s=0.3,
        )

        async def work():
            async with task_scope() as tasks:
                running = tasks.start(runs.run(stop))
                await worker.run(stop)
                await running

        stop = asyncio.Event()
        ended = self._tasks.start(work())
        self._workers.append(ended)
        return stop, ended

    async def until(self, condition, name="n"):
        """Return the report of a connector as soon as *condition* holds for it."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for each in self._workers:
                    if each.done():
                        # Raises if it has failed.
                        each.result()
                found = await self.connectors.describe(name)
                if found.report is not None and condition(found.report):
                    return found.report
                await asyncio.sleep(0.02)

    async def has_more_than(self, count, topic=TOPIC):
        return await self.count(topic) > count

    async def is_unlocked(self, name):
        """Return whether the lock of a connector is gone."""
        try:
            await self.client.subscriptions.describe(WORKERS_TOPIC, LOCK_PREFIX + name)
        except SubscriptionNotFound:
            return True
        return False

    async def count(self, topic=TOPIC):
        offsets = await self.client.topics.list_offsets([topic])
        return offsets[topic].end_offset if topic in offsets else 0


@pytest.fixture
async def shop(tmp_path):
    async with (
        memory_broker() as broker,
        pydanube.connect(broker.url) as client,
        task_scope() as tasks,
    ):
        yield Shop(client, broker.url, tasks, tmp_path)


def is_running(report):
    return report.state == "running"


async def test_worker_runs_changes_and_ends_what_is_stored(shop):
    stop, ended = shop.start("w")
    await shop.connectors.set("n", TOPIC, definition(count=5))
    await shop.until(lambda report: report.state == "finished")
    assert await shop.count() == 5
    await shop.connectors.set("n", TOPIC, definition(count=8))
    await shop.until(lambda each: (each.state, each.revision) == ("finished", 2))
    # It has continued where it stopped.
    assert await shop.count() == 8
    await shop.connectors.delete("n")
    await eventually(lambda: shop.is_unlocked("n"))
    stop.set()
    await ended


async def test_paused_connector_runs_on_from_where_it_stopped(shop):
    await shop.connectors.set("n", TOPIC, definition(rate=1000))
    shop.start("w")
    await shop.until(is_running)
    await shop.connectors.pause("n")
    await shop.until(lambda report: report.state == "paused")
    count = await shop.count()
    await shop.connectors.resume("n")
    await shop.until(is_running)
    await eventually(lambda: shop.has_more_than(count))


async def test_connector_that_is_stored_as_paused_does_not_run(shop):
    await shop.connectors.set("n", TOPIC, definition(count=5), is_paused=True)
    shop.start("w")
    await shop.until(lambda report: report.state == "paused")
    assert TOPIC not in await shop.client.topics.list()
    # A changed definition does not run before it is paused, either.
    await shop.connectors.set("n", TOPIC, definition(count=6))
    await shop.until(lambda each: (each.state, each.revision) == ("paused", 2))
    assert TOPIC not in await shop.client.topics.list()
    await shop.connectors.resume("n")
    await shop.until(lambda report: report.state == "finished")
    assert await shop.count() == 6


async def test_connector_that_is_made_anew_at_once_runs_its_new_definition(shop):
    await shop.connectors.set("n", TOPIC, definition(count=5))
    shop.start("w")
    await shop.until(lambda report: report.state == "finished")
    await shop.connectors.delete("n")
    await shop.connectors.set("n", TOPIC, definition(count=8))
    await eventually(lambda: shop.has_more_than(7))


async def test_worker_takes_over_what_another_one_leaves(shop):
    await shop.connectors.set("n", TOPIC, definition(rate=1000))
    stops = {}
    for name in ("a", "b"):
        stops[name], _ = shop.start(name)
    first = (await shop.until(is_running)).worker
    stops[first].set()
    second = (
        await shop.until(lambda each: is_running(each) and each.worker != first)
    ).worker
    assert {first, second} == {"a", "b"}
    values = []
    end = await shop.count()
    async for batch in shop.client.read(TOPIC, end=end):
        values += [json.loads(each)["number"] for each in batch.payloads]
    assert values == list(range(len(values)))


async def test_connector_that_was_deleted_without_workers_leaves_no_lock(shop):
    await shop.client.topics.create(WORKERS_TOPIC)
    for name in ("n", "gone"):
        await shop.client.subscriptions.create(WORKERS_TOPIC, LOCK_PREFIX + name)
    await shop.connectors.set("n", TOPIC, definition(rate=200))
    shop.start("one")
    await eventually(lambda: shop.is_unlocked("gone"))
    await shop.until(lambda each: each.state == "running")
    assert not await shop.is_unlocked("n")


async def test_many_connectors_are_shared_and_each_has_one_lock(shop):
    names = [f"n{number}" for number in range(12)]
    for name in names:
        topic = f"/default/{name}"
        await shop.connectors.set(name, topic, definition(topic, rate=10))
    shop.start("a")
    shop.start("b")
    owners = [(await shop.until(is_running, name)).worker for name in names]
    async with asyncio.timeout(TIMEOUT_S):
        while set(owners) != {"a", "b"}:
            await asyncio.sleep(0.05)
            found = (await shop.connectors.list()).connectors
            owners = [each.report.worker for each in found]
    for name in names:
        lock = LOCK_PREFIX + name
        held = await shop.client.subscriptions.describe(WORKERS_TOPIC, lock)
        assert len(held.consumers) <= 1


async def test_connector_without_its_secret_fails_with_the_reason(shop):
    text = json.dumps(
        {
            "kind": "http-sink",
            "topic": TOPIC,
            "options": {"url": "http://127.0.0.1:1/${env:SHOP_PATH}"},
        }
    )
    await shop.connectors.set("n", TOPIC, text)
    stop, ended = shop.start("w")
    report = await shop.until(lambda each: each.state == "failed")
    assert "SHOP_PATH is not set" in report.error
    stop.set()
    await ended
    shop.start("v", {"SHOP_PATH": "orders"})
    await shop.until(is_running)


BROKEN = """
from pydanube_connect import Source


class Orders(Source):
    @classmethod
    def problems(cls, options):
        raise LookupError("no such shop")

    async def batches(self, position):
        yield
"""


async def test_connector_whose_class_is_broken_fails_alone(shop, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    text = json.dumps({"kind": "broken.py:Orders", "topic": TOPIC})
    await shop.connectors.set("broken", TOPIC, text)
    await shop.connectors.set("n", TOPIC, definition(rate=10))
    shop.start("w")
    report = await shop.until(lambda each: each.state == "failed", "broken")
    assert report.error == "it cannot be loaded: LookupError: no such shop"
    await shop.until(is_running)


SOURCE = """
from pydanube_connect import Batch, Record, Source


class Orders(Source):
    async def batches(self, position):
        if position is None:
            topics = ("/bank/accounts", "/shop/others")
            yield Batch([Record(value=each, topic=each) for each in topics], 1)
"""


ENDLESS = """
import asyncio

from pydanube_connect import Batch, Record, Source


class Orders(Source):
    async def batches(self, position):
        number = position or 0
        while True:
            yield Batch([Record(value=str(number), topic="/shop/others")], number + 1)
            number += 1
            await asyncio.sleep(0.02)
"""


@pytest.fixture
async def guarded(tmp_path):
    """A broker with an author of connectors, and a worker that may do more."""
    token = tmp_path / "token"
    token.write_text(token_of(WORKER))
    async with (
        guarded_broker() as broker,
        client_of(broker, ROOT) as root,
        client_of(broker, AUTHOR) as author,
        task_scope() as tasks,
    ):
        security = root.security
        await root.namespaces.create("shop")
        await root.namespaces.create("bank")
        await security.set_role("storing", ["cluster_admin"])
        await security.add_binding("user:author", ["storing"], ["cluster"])
        patterns = ["/shop/*", "/bank/*", WORKERS_TOPIC]
        await security.add_binding("user:worker", ["developer"], patterns)
        shop = Shop(author, f"{broker.url}?token_file={token}", tasks, tmp_path)

        async def permit():
            await security.add_binding(
                "user:author", ["developer"], ["/shop/*"], binding_id="a"
            )

        await permit()
        shop.permit = permit
        shop.forbid = lambda: security.remove_binding("a")
        shop.root = root
        yield shop


async def test_connector_stops_when_its_author_loses_a_permission(guarded):
    await guarded.connectors.set("n", "/shop/n", definition("/shop/n", rate=100))
    guarded.start("w")
    await guarded.until(is_running)
    await guarded.forbid()
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            [found] = (await guarded.root.connectors.list()).connectors
            if found.report.state == "failed":
                break
            await asyncio.sleep(0.02)
    assert "the author of the connector, user:author" in found.report.error
    await guarded.permit()
    await guarded.until(is_running)


async def test_records_reach_no_topic_that_the_author_may_not_use(guarded, tmp_path):
    (tmp_path / "orders.py").write_text(SOURCE)
    fields = {"kind": "orders.py:Orders", "topic": "/shop/n", "dead_letters": "/shop/d"}
    await guarded.connectors.set("n", "/shop/n", json.dumps(fields))
    guarded.start("w")
    await guarded.until(lambda each: each.state == "finished")
    assert "/bank/accounts" not in await guarded.root.topics.list()
    assert await guarded.count("/shop/others") == 1
    [dead] = [each async for batch in guarded.client.read("/shop/d") for each in batch]
    assert dead.payload == b"/bank/accounts"
    assert "may not produce /bank/accounts" in dead.attributes["x-failure-reason"]


async def test_topic_of_records_that_the_author_loses_does_not_stop_the_connector(
    guarded, tmp_path
):
    (tmp_path / "endless.py").write_text(ENDLESS)
    fields = {
        "kind": "endless.py:Orders",
        "topic": "/shop/n",
        "dead_letters": "/shop/d",
    }
    await guarded.connectors.set("n", "/shop/n", json.dumps(fields))
    guarded.start("w")
    started = await guarded.until(is_running)
    await eventually(lambda: guarded.has_more_than(0, "/shop/others"))
    await guarded.root.security.add_binding(
        "user:author", ["developer"], ["/shop/n*", "/shop/d"], binding_id="a"
    )
    # Long enough for several checks.
    await eventually(lambda: guarded.has_more_than(20, "/shop/d"))
    report = await guarded.until(is_running)
    # Its broker may have been lost meanwhile.
    assert report.retries or report.changed_at == started.changed_at


async def test_author_must_be_able_to_change_what_a_source_changes(guarded, tmp_path):
    (tmp_path / "orders.py").write_text(SOURCE)
    fields = {
        "kind": "orders.py:Orders",
        "topic": "/shop/n",
        "dead_letters": "/shop/d",
        "deduplicate": "1h",
    }
    security = guarded.root.security
    for topic in ("/shop/others", "/bank/accounts"):
        await guarded.root.topics.create(topic)
    await security.add_binding("user:author", ["developer"], ["/shop/n*", "/shop/d"])
    await security.add_binding("user:author", ["producer"], ["/shop/others"])
    await guarded.forbid()
    await guarded.connectors.set("n", "/shop/n", json.dumps(fields))
    guarded.start("w")
    await guarded.until(lambda each: each.state == "finished")
    policy = (await guarded.root.topics.describe("/shop/others")).policy
    assert policy.deduplication is None
    assert await guarded.count("/shop/d") == 2


async def test_author_must_be_able_to_register_the_schema_of_a_source(
    guarded, tmp_path
):
    (tmp_path / "order.json").write_text('{"type": "object"}')
    text = json.dumps(
        {
            "kind": "generator-source",
            "topic": "/shop/n",
            "schema": {"type": "json_schema", "file": "order.json"},
        }
    )
    security = guarded.root.security
    await security.add_binding("user:worker", ["developer"], ["subject:*"])
    await guarded.connectors.set("n", "/shop/n", text)
    guarded.start("w")
    report = await guarded.until(lambda each: each.state == "failed")
    assert "schema_write subject:shop-n" in report.error
    assert "the author of the connector, user:author" in report.error
    await security.add_binding("user:author", ["developer"], ["subject:shop-*"])
    await guarded.until(is_running)
