"""Reply topics whose client has gone are deleted."""

from pydanube.model.request_reply import REPLY_TOPIC_PREFIX
from pydanube_broker.broker.topics.reply_topics import ReplyTopics
from pydanube_broker.testing import memory_broker

LEFT = REPLY_TOPIC_PREFIX + "0123"
"""The reply topic of a client that was killed."""


async def test_reply_topic_without_consumer_is_deleted_at_the_second_look():
    async with memory_broker() as running, running.connect() as client:
        broker = running.broker
        replies = ReplyTopics(broker.topics, broker.catalog, broker.shards)
        await client.topics.create("/system/reports", reliable=False)
        await client.topics.create(LEFT, reliable=False)
        # A replier keeps its producer, because it does not know that the client ended.
        async with client.producer(LEFT):
            async with client.consumer(LEFT, subscription="r", start="latest"):
                await replies.delete_unused()
                await replies.delete_unused()
                assert LEFT in await client.topics.list("system")
            await replies.delete_unused()
            assert LEFT in await client.topics.list("system")
            await replies.delete_unused()
            assert await client.topics.list("system") == ["/system/reports"]


async def test_reply_topic_that_is_consumed_again_stays():
    async with memory_broker() as running, running.connect() as client:
        broker = running.broker
        replies = ReplyTopics(broker.topics, broker.catalog, broker.shards)
        await client.topics.create(LEFT, reliable=False)
        await replies.delete_unused()
        async with client.consumer(LEFT, subscription="r", start="latest"):
            await replies.delete_unused()
        await replies.delete_unused()
        assert LEFT in await client.topics.list("system")
