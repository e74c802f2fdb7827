"""Names, patterns and positions become offsets of topics."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube_cli.messages.topic_ranges import find_ranges
from support.drivers.running import TOPIC, published


def bounds(ranges):
    return [(each.topic, each.base, each.end) for each in ranges]


@pytest.mark.parametrize(
    ("start", "end", "base", "stop"),
    [
        ("earliest", "latest", 0, 4),
        ("latest", None, 4, None),
        (1, 9, 1, 4),
        (
            datetime(2026, 1, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 3, tzinfo=UTC),
            1,
            3,
        ),
        (datetime(2027, 1, 1, tzinfo=UTC), "latest", 4, 4),
    ],
)
async def test_positions_become_offsets(client, start, end, base, stop):
    times = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]
    async with client.producer(TOPIC) as producer:
        await producer.send_batch(
            pa.table({"payload": [b""] * 4, "publish_time": times})
        )
    ranges = await find_ranges(client, [TOPIC], start, end)
    assert bounds(ranges) == [(TOPIC, base, stop)]
    assert ranges[0].is_base_exact == isinstance(start, int)


async def test_start_beyond_the_end_is_refused(client):
    await published(client, b"a")
    with pytest.raises(InvalidRequest, match="ends at offset 1; 2 is beyond"):
        await find_ranges(client, [TOPIC], 2, None)


async def test_topics_that_are_named_twice_are_read_once(client):
    await client.topics.create("/default/parts", partitions=2)
    await client.topics.create(TOPIC)
    names = ["/default/parts-part-1", "/default/*", TOPIC]
    ranges = await find_ranges(client, names, "earliest", "latest")
    assert [each.topic for each in ranges] == [
        "/default/parts-part-1",
        TOPIC,
        "/default/parts-part-0",
    ]


async def test_topics_that_do_not_exist_are_named(client):
    for name in ("/nowhere/order", "/default/nothing-*", "/nowhere/*"):
        with pytest.raises(TopicNotFound, match=name.replace("*", r"\*")):
            await find_ranges(client, [name], "earliest", "latest")


async def test_non_reliable_topic_is_refused_by_name_and_skipped_by_a_pattern(client):
    await client.topics.create("/default/ticks", reliable=False)
    with pytest.raises(InvalidRequest, match="'danube consume'"):
        await find_ranges(client, ["/default/ticks"], "earliest", "latest")
    with pytest.raises(TopicNotFound, match="no reliable topic"):
        await find_ranges(client, ["/default/*"], "earliest", "latest")
    await client.topics.create(TOPIC)
    found = await find_ranges(client, ["/default/*"], "earliest", "latest")
    assert [each.topic for each in found] == [TOPIC]


async def test_number_of_topics_is_limited(client):
    await client.topics.create(TOPIC, partitions=3)
    with pytest.raises(InvalidRequest, match="more than 2 topics"):
        await find_ranges(client, [TOPIC], "earliest", "latest", topics_max=2)
