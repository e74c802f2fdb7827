"""`danube storage verify` finds, and repairs, damaged copies of segments."""

import asyncio
import json

import pytest

import pydanube
from support.drivers.commands import danube
from support.fakes.tiered_brokers import (
    TOPIC,
    payloads_of,
    publish,
    settings,
    stored,
    uploaded,
)
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SEGMENTS = 4
CORRUPT = 11
"""The exit code for damage."""


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def broker(tmp_path, store):
    other = (f"fs://{tmp_path}/other", {})
    path = settings(tmp_path, (f"fs://{store}", {}), {"other": other})
    with BrokerProcess(tmp_path / "data", "--config", str(path)) as running:
        yield running


def fill(broker, base=0):
    """
    Publish messages in segments that are uploaded.

    *base* is the number of messages before.  Return the object names of all segments.
    """

    async def run():
        async with pydanube.connect(broker.url) as client:
            for number in range(SEGMENTS):
                await publish(client, payloads_of(50))
                await uploaded(client, base + 50 * (number + 1))
            return [
                each.object_name
                for each in (await client.storage.segments(TOPIC)).segments
            ]

    return asyncio.run(run())


def verify(broker, *options):
    """Run the command; return its exit code, result and messages."""
    done = danube("storage", "verify", *options, "--format", "json", url=broker.url)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_copies_are_found_and_repaired(tmp_path, broker, store):
    local = tmp_path / "data" / "objects"
    names = fill(broker)
    code, result, _ = verify(broker)
    assert (code, result["segments"], result["damaged"]) == (0, len(names), [])
    assert danube("storage", "evict", "--yes", url=broker.url).returncode == 0
    assert verify(broker)[0] == 0
    # The broker keeps the local copies of segments from here on.
    before = names
    names = fill(broker, base=50 * SEGMENTS)
    assert len(names) >= len(before) + SEGMENTS
    old, first, second, third = names[0], *names[-3:]
    kept = {name: (store / name).read_bytes() for name in names}
    damage(store / old)
    damage(local / first)
    damage(store / second)
    (store / third).unlink()
    code, result, notes = verify(broker, TOPIC)
    assert code == CORRUPT
    assert {
        each["object_name"]: (each["local"], each["remote"])
        for each in result["damaged"]
    } == {
        old: ("none", "damaged"),
        first: ("damaged", "intact"),
        second: ("intact", "damaged"),
        third: ("intact", "missing"),
    }
    assert f"{third}: the remote copy is missing" in notes
    done = danube("storage", "verify", "--repair", url=broker.url)
    assert done.returncode == CORRUPT
    assert "--repair --from" in done.stdout
    for name in (first, second, third):
        assert (local / name).read_bytes() == (store / name).read_bytes() == kept[name]
    code, result, _ = verify(broker)
    assert [each["object_name"] for each in result["damaged"]] == [old]
    # The advice.
    other = tmp_path / "other" / old
    other.parent.mkdir(parents=True)
    other.write_bytes(kept[old])
    code, result, _ = verify(broker, "--repair", "--from", "other")
    assert (code, result["damaged"][0]["remote"]) == (0, "repaired")
    assert verify(broker)[:2] == (0, result | {"damaged": []} | _sizes(broker))
    assert (store / old).read_bytes() == kept[old]
    assert broker.stop() == 0


def _sizes(broker):
    result = verify(broker)[1]
    return {"bytes_read": result["bytes_read"]}


def test_verification_continues_after_a_restart_and_does_not_open_topics(
    tmp_path, broker, store
):
    names = fill(broker)

    async def begin():
        async with pydanube.connect(broker.url) as client:
            # At this rate, the first page does not contain all segments.
            page = await client.storage.verify(bytes_per_s=10_000, count=True)
            assert 1 <= page.segment_count < len(names) == page.segments_left
            return page.after, page.segment_count

    after, count = asyncio.run(begin())
    broker.kill()
    damage(store / names[0])
    damage(store / names[-1])
    # Nothing can be read of the topic's newest segment; the broker starts.
    broker.start()
    code, result, notes = verify(broker, "--after", after, "--rate", "0")
    assert (code, result["segments"]) == (CORRUPT, len(names) - count)
    assert [each["object_name"] for each in result["damaged"]] == [names[-1]]
    assert names[-1] in notes
    code, _, error = verify(broker, "--after", "somewhere")
    assert code == 2
    assert "is not a position of a verification" in error
    assert broker.stop() == 0


def test_verification_goes_on_beside_live_traffic(broker):
    fill(broker)

    async def run():
        async with pydanube.connect(broker.url) as client:
            done = asyncio.Event()

            async def keep_verifying():
                for _ in range(3):
                    after, pages = "", 0
                    while after or not pages:
                        page = await client.storage.verify(after=after)
                        assert page.damaged == ()
                        after, pages = page.after, pages + 1
                done.set()

            async with asyncio.TaskGroup() as group:
                group.create_task(keep_verifying())
                while not done.is_set():
                    # Segments are sealed, uploaded and evicted meanwhile.
                    await publish(client, payloads_of(20))
                    await client.storage.evict()
            assert len(await stored(client)) > 50 * SEGMENTS

    asyncio.run(run())
    assert broker.stop() == 0


def test_topic_without_segments_and_unknown_topic(broker):
    assert danube("topics", "create", TOPIC, url=broker.url).returncode == 0
    code, result, _ = verify(broker, TOPIC)
    assert (code, result["segments"]) == (0, 0)
    assert verify(broker, "/default/nothing")[0] == 3
    fast = "/default/fast"
    danube("topics", "create", fast, "--non-reliable", url=broker.url)
    code, _, error = verify(broker, fast)
    assert code == 2
    assert "is not reliable" in error
    assert broker.stop() == 0
