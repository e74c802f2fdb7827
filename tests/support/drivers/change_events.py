"""Changes in databases: the messages that sources publish, also under kills."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from contextlib import asynccontextmanager

import pydanube
from support.drivers.connectors import ConnectProcess, declared, running
from support.servers.processes import BrokerProcess
from support.worlds.current import memory_broker

TOPIC = "/default/orders"
TRANSACTIONS = 300
ROWS = 40
"""How many rows a transaction inserts; it changes the first one afterwards."""
EVENTS = TRANSACTIONS * (ROWS + 1)
KILLS = 9


@asynccontextmanager
async def broker_with_topics(*topics):
    """A broker and a client, with the topics that are read."""
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        for each in (TOPIC, *topics):
            await client.topics.create(each)
        yield broker, client


async def events_of(client, count, topic=TOPIC, start=0):
    """The first *count* messages: their keys and values."""
    found = []
    end = start + count
    async for batch in client.read(topic, start=start, end=end, follow=True):
        for message in batch:
            text = message.payload
            found.append((message.key, json.loads(text) if text else None))
    return found


def shortened(events):
    return [
        (event["op"], key, (event["after"] or event["before"])) for key, event in events
    ]


async def check_large_transactions(database, rows):
    """
    Stop a connector within a transaction, after any batch; check all messages.

    *rows* is the query of so many rows of ``orders`` as its ``{}`` says.
    """
    count = 5000
    database.execute("INSERT INTO orders VALUES (0, 'first', 0)")
    async with broker_with_topics() as (broker, client):
        text = database.declaration()
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
            # A change follows the snapshot, which begins again if it is interrupted.
            database.execute("UPDATE orders SET total = 1 WHERE id = 0")
            await events_of(client, 2)
        database.execute(
            f"INSERT INTO orders {rows.format(count)}",
            "UPDATE orders SET who = 'few' WHERE id BETWEEN 1 AND 10",
        )
        seen = 0
        while seen < 2 + count + 10:
            async with running(declared(text, broker.url)) as until:
                # Stop after some batch, in the middle of the transaction.
                await until(lambda found: found["shop"].messages > 0)
            offsets = await client.topics.list_offsets([TOPIC])
            seen = offsets[TOPIC].end_offset
        events = await events_of(client, seen)
    assert [each[2]["id"] for each in shortened(events)] == [
        0,
        *range(count + 1),
        *range(1, 11),
    ]


async def check_tables(database, text, topic):
    """Check the changes of a table that *text* publishes to *topic* by its name."""
    database.execute("CREATE TABLE other (x int PRIMARY KEY)")
    database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
    async with (
        broker_with_topics(topic) as (broker, client),
        running(declared(text, broker.url)),
    ):
        await events_of(client, 1)
        database.execute("INSERT INTO other VALUES (1)")
        # It waits for the end of the snapshot, so the source must be able to go on.
        alter = "ALTER TABLE other ADD COLUMN y varchar(9) DEFAULT 'z'"
        await asyncio.to_thread(database.execute, alter)
        database.execute("INSERT INTO other (x) VALUES (2)")
        events = await events_of(client, 2, topic)
    assert [each[2] for each in shortened(events)] == [{"x": 1}, {"x": 2, "y": "z"}]


def check_kills(server, database, directory, *, lost):
    """
    Kill connector, broker and server while transactions commit; check the messages.

    *lost* is the error of statements whose server was killed.
    """
    file = directory / "connectors.yaml"
    file.write_text(database.declaration())
    writer = _Writer(database, lost)
    thread = threading.Thread(target=writer.run)
    with (
        BrokerProcess(directory / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        def kill(number):
            if number % 3 == 2:
                server.crash()
                server.start()
            else:
                process = (connector, broker)[number % 3]
                process.kill()
                process.start()

        async def run():
            async with pydanube.connect(broker.url) as client:
                await client.topics.create(TOPIC, exist_ok=True)
                # The snapshot is complete before the writer begins.
                database.execute("INSERT INTO orders VALUES (-1, 'first', 0)")
                await events_of(client, 1)
                database.execute("DELETE FROM orders WHERE id = -1")
                await events_of(client, 2)
                thread.start()
                events = await _followed(client, 2, kill)
                return events, (await client.topics.describe(TOPIC)).message_count

        events, stored = pydanube.run(run())
        thread.join()
    assert stored == 2 + EVENTS
    wanted = []
    for first in range(0, TRANSACTIONS * ROWS, ROWS):
        wanted += [("c", first + at) for at in range(ROWS)] + [("u", first)]
    assert [(each["op"], each["after"]["id"]) for each in events] == wanted


class _Writer:
    """Commits transactions, whatever happens to the server."""

    def __init__(self, database, lost):
        self._database = database
        self._lost = lost

    def run(self):
        for number in range(TRANSACTIONS):
            while not self._is_written(number * ROWS):
                pass

    def _is_written(self, first):
        rows = ", ".join(f"({each}, 'n', 0)" for each in range(first, first + ROWS))
        try:
            if not self._database.query(f"SELECT 1 FROM orders WHERE id = {first}"):
                self._database.execute(
                    f"INSERT INTO orders VALUES {rows}",
                    f"UPDATE orders SET total = 1 WHERE id = {first}",
                )
        except self._lost:
            return False
        return True


async def _followed(client, start, kill):
    """The events from *start* on; ``kill(number)`` is called at random moments."""
    chance = random.Random(5)
    moments = sorted(chance.sample(range(1, EVENTS - 500), KILLS))
    events = []
    while len(events) < EVENTS:
        at = start + len(events)
        try:
            async for batch in client.read(
                TOPIC, start=at, end=start + EVENTS, follow=True
            ):
                events += [json.loads(each) for each in batch.payloads]
                if moments and len(events) >= moments[0]:
                    moments.pop(0)
                    kill(len(moments))
        except pydanube.Unavailable:
            continue
    assert moments == []
    return events
