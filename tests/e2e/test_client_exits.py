"""Programs that end, fork, or end their loop while a client is open."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent
from uuid import uuid4

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.rotated,
]

START = """
import asyncio, atexit, contextlib, os, sys, threading
import pydanube, pydanube.sync
URL, TOPIC = sys.argv[1:]
"""

SYNCHRONOUS = {
    "stack": """
        stack = contextlib.ExitStack()
        client = stack.enter_context(pydanube.sync.connect(URL))
        producer = stack.enter_context(client.producer(TOPIC))
        producer.send("a")
    """,
    "queued messages": """
        stack = contextlib.ExitStack()
        client = stack.enter_context(pydanube.sync.connect(URL))
        producer = stack.enter_context(client.producer(TOPIC))
        for _ in range(5000):
            producer.send_nowait("a" * 100)
    """,
    "attribute": """
        class Bus:
            def __init__(self):
                self.scope = pydanube.sync.connect(URL)
                self.client = self.scope.__enter__()
        bus = Bus()
    """,
    "closed by atexit": """
        scope = pydanube.sync.connect(URL)
        client = scope.__enter__()
        atexit.register(scope.__exit__, None, None, None)
    """,
    "generator": """
        def fixture():
            with pydanube.sync.connect(URL) as client, client.producer(TOPIC) as p:
                p.send_nowait("a")
                yield client
        generator = fixture()
        client = next(generator)
    """,
    "iterator": """
        stack = contextlib.ExitStack()
        client = stack.enter_context(pydanube.sync.connect(URL))
        client.topics.create(TOPIC)
        with client.producer(TOPIC) as producer:
            producer.send("a")
        batches = client.read(TOPIC, follow=True)
        next(batches)
    """,
    "daemon thread": """
        stack = contextlib.ExitStack()
        client = stack.enter_context(pydanube.sync.connect(URL))
        client.topics.create(TOPIC)
        consumer = stack.enter_context(client.consumer(TOPIC, subscription="s"))
        with client.producer(TOPIC) as producer:
            producer.send("a")
        got = threading.Event()
        def receive():
            for message in consumer:
                message.ack()
                got.set()
        threading.Thread(target=receive, daemon=True).start()
        assert got.wait(60)
    """,
    "exit in with": """
        with pydanube.sync.connect(URL) as client:
            print("end")
            sys.exit(0)
    """,
}


UNFINISHED = """
async def fixture():
    async with pydanube.connect(URL) as client, client.producer(TOPIC):
        yield client
async def main():
    global generator
    generator = fixture()
    await anext(generator)
asyncio.run(main())
"""


REFUSED = """
async def main():
    with contextlib.suppress(pydanube.ConnectionLost):
        async with pydanube.connect("danube://127.0.0.1:1"):
            pass
asyncio.run(main())
"""


def run(url, topic, program):
    """Run *program*; one that does not end fails the test."""
    return subprocess.run(
        [sys.executable, "-c", START + dedent(program) + "\nprint('end')", url, topic],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def topic():
    return f"/default/exits-{uuid4().hex}"


@pytest.mark.parametrize("program", SYNCHRONOUS.values(), ids=SYNCHRONOUS.keys())
def test_a_process_with_an_open_client_ends_silently(broker_url, topic, program):
    ended = run(broker_url, topic, program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_messages_that_were_queued_before_the_exit_are_stored(
    broker_url, client, topic
):
    run(broker_url, topic, SYNCHRONOUS["queued messages"])
    facts = client.topics.describe(topic)
    assert (facts.end_offset, facts.producers) == (5000, ())


def test_a_process_with_an_open_client_ends_with_its_own_exception(broker_url, topic):
    ended = run(
        broker_url,
        topic,
        """
        stack = contextlib.ExitStack()
        client = stack.enter_context(pydanube.sync.connect(URL))
        raise ValueError("boom")
        """,
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: boom\n")
    assert ended.stderr.count("Traceback") == 1


def test_a_forked_process_gets_closed_and_leaves_the_client_to_its_parent(
    broker_url, topic
):
    ended = run(
        broker_url,
        topic,
        """
        with pydanube.sync.connect(URL) as client, client.producer(TOPIC) as producer:
            producer.send("a")
            if not os.fork():
                for call in client.topics.list, lambda: producer.send("b"):
                    try:
                        call()
                    except pydanube.Closed as error:
                        assert "in each process" in str(error)
                        print(type(error).__name__, flush=True)
                with pydanube.sync.connect(URL) as own:
                    assert own.topics.describe(TOPIC).end_offset == 1
                sys.exit(0)
            _, status = os.wait()
            assert status == 0, status
            assert producer.send("b").offset == 1
        """,
    )
    assert (ended.stdout, ended.stderr) == ("Closed\nClosed\nend\n", "")


ASYNCHRONOUS = {
    "client": "client = await stack.enter_async_context(pydanube.connect(URL))",
    "producer and consumer": """
        client = await stack.enter_async_context(pydanube.connect(URL))
        producer = await stack.enter_async_context(client.producer(TOPIC))
        await producer.send("a")
        consumer = client.consumer(TOPIC, subscription="s")
        await stack.enter_async_context(consumer)
    """,
    "dropped": "client = await pydanube.connect(URL).__aenter__()",
    "reader": """
        client = await stack.enter_async_context(pydanube.connect(URL))
        await client.topics.create(TOPIC)
        async with client.producer(TOPIC) as producer:
            await producer.send("a")
        batches = client.read(TOPIC, follow=True)
        await anext(batches)
    """,
    "partitions": """
        client = await stack.enter_async_context(pydanube.connect(URL))
        await client.topics.create(TOPIC, partitions=3)
        producer = await stack.enter_async_context(client.producer(TOPIC))
        await producer.send("a")
        consumer = client.consumer(TOPIC, subscription="s")
        await stack.enter_async_context(consumer)
        batches = client.read(TOPIC, follow=True)
        await anext(batches)
    """,
}


@pytest.mark.parametrize("body", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS.keys())
@pytest.mark.parametrize("runner", ["asyncio.run", "pydanube.run"])
def test_a_client_that_is_open_when_its_loop_ends_warns_once(
    broker_url, topic, body, runner
):
    main = "async def main():\n    global stack, client, batches\n"
    main += "    stack = contextlib.AsyncExitStack()\n"
    main += "".join(f"    {line}\n" for line in dedent(body).splitlines())
    ended = run(broker_url, topic, main + f"\n{runner}(main())")
    assert (ended.returncode, ended.stdout) == (0, "end\n")
    warning, *rest = ended.stderr.splitlines()
    assert "RuntimeWarning" in warning
    assert "was open when its event loop ended" in warning
    # Python shows the line that warns.
    assert len(rest) == 1


def test_an_unfinished_generator_closes_its_client_when_its_loop_ends(
    broker_url, topic
):
    ended = run(broker_url, topic, UNFINISHED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_a_client_that_found_no_broker_says_nothing_at_the_end(broker_url, topic):
    ended = run(broker_url, topic, REFUSED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")
