"""Reply topics whose client has gone are deleted."""

import pytest

from pydanube.model.errors import JournalFailed, NotOwner
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


@pytest.mark.parametrize("failure", [NotOwner("it moves"), JournalFailed("full")])
async def test_topic_that_cannot_be_deleted_holds_up_no_other(failure):
    async with memory_broker() as running, running.connect() as client:
        broker, failing = running.broker, [LEFT]

        class Failing:
            """Topics of which some cannot be deleted."""

            find_open = broker.topics.find_open

            async def delete(self, name, *, force):
                if str(name) in failing:
                    raise failure
                await broker.topics.delete(name, force=force)

        replies = ReplyTopics(Failing(), broker.catalog, broker.shards)
        await client.topics.create(LEFT, reliable=False)
        await client.topics.create(f"{LEFT}-z", reliable=False)
        for _ in range(2):
            await replies.delete_unused()
        assert await client.topics.list("system") == [LEFT]
        failing.clear()
        for _ in range(2):
            await replies.delete_unused()
        assert await client.topics.list("system") == []
