"""Samples are taken while somebody looks."""

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
