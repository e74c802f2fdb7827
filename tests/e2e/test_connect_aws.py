"""Queues, topics and streams of AWS, with a server of their interface."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("botocore")

import pydanube
from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from pydanube_connect.trial import try_connector
from support.drivers.connectors import (
    ConnectProcess,
    declared,
    numbers_under_kills,
    running,
    write_messages,
)
from support.servers.aws import REGION, new_queue, options_of, service
from support.servers.object_stores import SECRET_KEY, S3Server
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

TOPIC = "/default/orders"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("aws")) as found:
        yield found


@pytest.fixture(scope="module")
def sqs(server):
    return service(server, "sqs")


@pytest.fixture(scope="module")
def kinesis(server):
    return service(server, "kinesis")


def declaration(server, kind, fields="", **options):
    return f"""
connectors:
  orders:
    kind: {kind}
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    {fields}
    options: {json.dumps({**options_of(server), **options})}
"""


DEAD = "dead_letters: /default/dead"


@asynccontextmanager
async def stored(text, topic=TOPIC):
    """Run connectors; yields a function that returns the first messages of *topic*."""
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(topic)

        async def first(count):
            found = []
            async for batch in client.read(topic, end=count, follow=True):
                found += batch
            return found

        async with running(declared(text, broker.url)) as until:
            yield first, until


def stream_of(kinesis, name, shards=1):
    kinesis.create_stream(StreamName=name, ShardCount=shards)
    return name


async def test_messages_of_a_queue_are_published_and_deleted(server, sqs):
    url = new_queue(sqs, "incoming")
    facts = {"who": {"DataType": "String", "StringValue": "Zoë"}}
    facts["raw"] = {"DataType": "Binary", "BinaryValue": b"\xff"}
    for number in range(23):
        sqs.send_message(QueueUrl=url, MessageBody=f"{number}", MessageAttributes=facts)
    fields = "deduplicate: 1h"
    async with stored(declaration(server, "sqs-source", fields, queue="incoming")) as (
        first,
        until,
    ):
        found = await first(23)
        await until(lambda statuses: statuses["orders"].messages == 23)
    assert sorted(int(each.payload) for each in found) == list(range(23))
    assert found[0].attributes["who"] == "Zoë"
    assert found[0].attributes["raw"] == "/w=="
    assert found[0].attributes["sqs.message_id"]
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert left["ApproximateNumberOfMessages"] == "0"
    assert left["ApproximateNumberOfMessagesNotVisible"] == "0"


async def test_messages_are_sent_to_queues_in_the_order_of_their_key(server, sqs):
    url = new_queue(sqs, "outgoing.fifo")
    text = declaration(server, "sqs-sink", DEAD, queue="outgoing.fifo")
    messages = [("k", b"%d" % number) for number in range(12)]
    bad = [("a b", b"x"), ("k", b""), ("k", b"\xff"), ("k", b"\0")]
    status, dead = await write_messages(text, TOPIC, *messages, *bad)
    assert (status.messages, status.retries) == (12, 0)
    assert [each.payload for each in dead] == [payload for _, payload in bad]
    found = []
    while len(found) < 12:
        answer = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["MessageGroupId"],
        )
        for each in answer["Messages"]:
            found.append(each["Body"])
            assert each["Attributes"]["MessageGroupId"] == "k"
            receipt = each["ReceiptHandle"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    assert found == [str(number) for number in range(12)]


async def test_messages_are_published_to_the_subscribers_of_a_topic(server, sqs):
    sns = service(server, "sns")
    arn = sns.create_topic(Name="alerts")["TopicArn"]
    url = new_queue(sqs, "subscriber")
    queue = f"arn:aws:sqs:{REGION}:123456789012:subscriber"
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue)
    text = declaration(server, "sns-sink", DEAD, topic=arn)
    status, dead = await write_messages(text, TOPIC, (None, b"full"), (None, b"\xff"))
    assert (status.messages, len(dead)) == (1, 1)
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"])["Message"] == "full"


async def test_records_are_published_once_over_restarts_and_splits(server, kinesis):
    name = stream_of(kinesis, "events", 2)

    def put(numbers):
        for number in numbers:
            kinesis.put_record(
                StreamName=name, Data=b"%d" % number, PartitionKey=str(number % 5)
            )

    put(range(100))
    text = declaration(server, "kinesis-source", stream=name, poll="20ms")
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC)
        found = []
        for until_count in (100, 160, 220):
            async with running(declared(text, broker.url)):
                async for batch in client.read(
                    TOPIC, start=len(found), end=until_count, follow=True
                ):
                    found += batch
                if until_count == 160:
                    shard = kinesis.list_shards(StreamName=name)["Shards"][0]
                    hashes = shard["HashKeyRange"]
                    middle = int(hashes["EndingHashKey"]) // 2
                    kinesis.split_shard(
                        StreamName=name,
                        ShardToSplit=shard["ShardId"],
                        NewStartingHashKey=str(middle),
                    )
            # While the connector does not run.
            put(range(until_count, until_count + 60))
        count = (await client.topics.describe(TOPIC)).message_count
    assert count == 220
    by_key = {}
    for each in found:
        by_key.setdefault(each.key, []).append(int(each.payload))
    assert by_key == {str(key): list(range(key, 220, 5)) for key in range(5)}
    assert found[0].attributes.keys() == {
        "kinesis.shard",
        "kinesis.sequence_number",
        "kinesis.time",
    }


async def test_latest_begins_with_new_records(server, kinesis):
    name = stream_of(kinesis, "latest")
    kinesis.put_record(StreamName=name, Data=b"old", PartitionKey="k")
    options = {"stream": name, "poll": "20ms", "start": "latest"}
    text = declaration(server, "kinesis-source", **options)
    async with memory_broker() as broker, broker.connect() as client:
        for topic in (TOPIC, f"{TOPIC}.positions"):
            await client.topics.create(topic)
        async with running(declared(text, broker.url)):
            # The beginning is stored.
            await anext(client.read(f"{TOPIC}.positions", follow=True))
            kinesis.put_record(StreamName=name, Data=b"new", PartitionKey="k")
            batch = await anext(client.read(TOPIC, follow=True))
    assert list(batch.payloads) == [b"new"]


async def test_messages_are_put_into_a_stream(server, kinesis):
    name = stream_of(kinesis, "copies")
    text = declaration(server, "kinesis-sink", DEAD, stream=name)
    messages = [("k" * 300, b""), (None, b"\xff"), ("a", b"x" * 2**20)]
    messages += [("k", b"%d" % number) for number in range(600)]
    status, dead = await write_messages(text, TOPIC, *messages)
    assert (status.messages, len(dead)) == (602, 1)
    assert "1,048,576 bytes" in dead[0].attributes["x-failure-reason"]
    [shard] = kinesis.list_shards(StreamName=name)["Shards"]
    iterator = kinesis.get_shard_iterator(
        StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found = kinesis.get_records(ShardIterator=iterator)["Records"]
    assert [each["Data"] for each in found[:2]] == [b"", b"\xff"]
    assert len(found[0]["PartitionKey"]) == 64
    assert [int(each["Data"]) for each in found[2:]] == list(range(600))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sqs-source", {"queue": "none"}),
        ("sqs-sink", {"queue": "none"}),
        ("sns-sink", {"topic": f"arn:aws:sns:{REGION}:123456789012:none"}),
        ("kinesis-sink", {"stream": "none"}),
        ("kinesis-source", {"stream": "none"}),
    ],
)
async def test_what_does_not_exist_is_a_problem_and_stops(server, kind, options):
    text = declaration(server, kind, **options)
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")
        connectors = declared(text, broker.url)
        trial = await try_connector(connectors[0], timeout_s=20)
        async with running(connectors) as until:
            found = await until(lambda all_: all_["orders"].state.is_over)
    for problem in (trial.problem, found["orders"].error):
        assert kind.partition("-")[0] in problem
        assert SECRET_KEY not in problem
    assert found["orders"].state is State.FAILED


THROUGH = """
connectors:
  there:
    kind: kinesis-sink
    topic: /default/orders
    retries: {{backoff: 100ms}}
    batch: {{messages: 100}}
    options: {options}
  back:
    kind: kinesis-source
    topic: /default/back
    retries: {{backoff: 100ms}}
    options: {options}
"""


@pytest.mark.soak
def test_nothing_is_lost_or_published_twice_although_all_are_killed(
    server, kinesis, tmp_path
):
    """Through Kinesis and back, while connectors and broker are killed."""
    count = 3000
    name = stream_of(kinesis, "through")
    file = tmp_path / "connectors.yaml"
    options = json.dumps({**options_of(server), "stream": name})
    file.write_text(THROUGH.format(options=options))

    async def run(kill):
        async with pydanube.connect(broker.url, retry_s=60) as client:
            for topic in ("/default/orders", "/default/back"):
                await client.topics.create(topic, exist_ok=True)
            async with client.producer("/default/orders") as producer:
                for first in range(0, count, 100):
                    payloads = [b"%d" % each for each in range(first, first + 100)]
                    await producer.send_batch(payloads)
            found = await numbers_under_kills(client, "/default/back", count, kill)
            [shard] = kinesis.list_shards(StreamName=name)["Shards"]
            in_stream = 0
            iterator = kinesis.get_shard_iterator(
                StreamName=name,
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )["ShardIterator"]
            while True:
                answer = kinesis.get_records(ShardIterator=iterator)
                if not answer["Records"]:
                    break
                in_stream += len(answer["Records"])
                iterator = answer["NextShardIterator"]
            while True:
                facts = await client.topics.describe("/default/back")
                if facts.message_count >= in_stream:
                    return found, in_stream, facts.message_count
                await asyncio.sleep(0.1)

    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connectors,
    ):

        def kill(number):
            process = (connectors, broker)[number % 2]
            process.kill()
            process.start()

        found, in_stream, stored_count = pydanube.run(run(kill))
    # The sink may put messages again; the source publishes each of Kinesis once.
    assert list(dict.fromkeys(found)) == list(range(count))
    assert stored_count == in_stream
