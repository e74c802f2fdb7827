"""Samples are taken while somebody looks."""

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube_console.monitor import Monitor
from support.worlds.current import memory_broker


async def test_sample_has_topics_brokers_and_storage():
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create("/default/a")
        monitor = Monitor(client)
        async with task_scope() as tasks:
            tasks.run(monitor.run())
            await monitor.first()
        assert monitor.error == ""
        assert monitor.names == ["/default/a"]
        assert [each.topic for each in monitor.history.sample.topics] == ["/default/a"]
        assert len(monitor.cluster.brokers) == 1
        [name] = monitor.storages
        assert name == monitor.cluster.brokers[0].broker_id


async def test_dead_letters_of_topics_beyond_the_measured_ones_are_counted():
    topic, dead = "/default/zebras", "/default/zebras-dead"
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create("/default/ants")
        await client.topics.create(dead)
        await client.topics.create(topic, partitions=2)
        await client.subscriptions.create(topic, "s")
        policy = pydanube.FailurePolicy(
            poison=pydanube.PoisonPolicy.DEAD_LETTER, dead_letter_topic=dead
        )
        await client.subscriptions.configure(topic, "s", failure_policy=policy)
        async with client.producer(dead) as producer:
            await producer.send_batch([b"1", b"2"])
        monitor = Monitor(client, topics_max=1)
        await monitor.take()
        [route] = monitor.findings.dead_letter_routes
        assert (route.topic, route.subscription) == (topic, "s")
        assert monitor.dead_letters == {dead: 2}
