"""The life cycle of a channel, on connections that break."""

import asyncio

import pytest

import pydanube
from pydanube.client.connections.channel import KeptChannel
from pydanube.client.connections.requester import Backoff
from pydanube.client.pure.owners import TopicOwners
from pydanube.model.errors import (
    ConnectionLost,
    Draining,
    JournalFailed,
    NotOwner,
    TopicNotFound,
)
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import error_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from support.drivers.running import TOPIC
from support.fakes.readers import a_while
from support.fakes.scripted_broker import ScriptedBroker


class Connection:
    """Answers requests; breaks together with the answer if *is_breaking*."""

    url = "danube://scripted"

    def __init__(self, *, is_breaking=False, error=None):
        self.is_breaking = is_breaking
        self.error = error
        self.released = []

    def new_channel(self, owner):
        self.owner = owner
        return 7

    async def request(self, message, channel):
        if self.error is not None:
            raise self.error
        if self.is_breaking:
            self.owner._on_closed(ConnectionLost("gone"))
        return "answer"

    def release_channel(self, channel):
        self.released.append(channel)


class Client:
    def __init__(self, *connections):
        self.connections = list(connections)
        self.shown = str
        self.retry_s = 30.0
        self.owners = TopicOwners()

    def backoff(self):
        return Backoff()

    def on_error(self, topic, url, error):
        self.owners.on_error(topic, url, error)

    async def connection(self, topic):
        if not self.connections:
            raise ConnectionLost("no broker answers")
        return self.connections.pop(0)


class Recorder(KeptChannel):
    _CLOSE_REQUEST = pb.CloseConsumer()

    def __init__(self, client):
        super().__init__(client, "/default/t", "c")
        self.events = []

    def _on_frame(self, frame): ...

    def _abandon(self): ...

    async def aclose(self): ...

    def _open_request(self):
        return pb.OpenConsumer()

    def _on_opened(self, connection, answer):
        self.events.append(answer)

    def _on_broken(self, reason, backoff):
        self.events.append(type(reason).__name__)
        if isinstance(reason, TopicNotFound):
            self.failure = reason
        return True


async def test_channel_that_breaks_together_with_the_answer_is_opened_again():
    working = Connection()
    channel = Recorder(Client(Connection(is_breaking=True), working))
    await channel._open()
    assert channel.is_connected
    assert channel.events == ["answer"]
    assert channel._connection is working


async def test_broken_channel_is_opened_again_until_there_is_a_failure():
    refusing = Connection(error=TopicNotFound("gone"))
    channel = Recorder(Client(Connection(), Connection(), refusing))
    await channel._open()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(channel._keep_open())
        for _ in range(2):
            await asyncio.sleep(0)
            channel._on_closed(ConnectionLost("gone"))
    assert channel.events == [
        *("answer", "ConnectionLost", "answer", "ConnectionLost"),
        "TopicNotFound",
    ]
    assert isinstance(channel.failure, TopicNotFound)
    assert refusing.released == [7]
    assert not channel.is_connected


async def test_first_opening_raises_a_final_error():
    channel = Recorder(Client(Connection(error=TopicNotFound("gone"))))
    with pytest.raises(TopicNotFound):
        await channel._open()


FAILOVER = [
    NotOwner("moved"),
    Draining("stops"),
    JournalFailed("x"),
    ConnectionLost(""),
]


@pytest.mark.parametrize("error", FAILOVER, ids=lambda error: type(error).__name__)
async def test_a_patient_channel_goes_on_to_wait_when_its_broker_fails(error):
    client = Client(*(Connection(error=error) for _ in range(3)), Connection())
    # As if it had waited for longer than that at each of them.
    client.retry_s = -1.0
    channel = Recorder(client)
    channel._is_patient = True
    await channel._open()
    assert channel.events == ["answer"]


async def test_a_patient_channel_gives_up_when_no_broker_can_be_asked():
    client = Client(Connection(error=Draining("stops")))
    client.retry_s = -1.0
    channel = Recorder(client)
    channel._is_patient = True
    with pytest.raises(ConnectionLost, match="no broker answers"):
        await channel._open()


# Seeks and acknowledgements whose answers come late, or over an earlier channel.

DONE = Kind.OK, pb.Ok()
TYPES = "exclusive", "failover", "shared", "key_shared"


@pytest.fixture
def scripted():
    broker = ScriptedBroker()
    broker.answers[Kind.CLOSE_CONSUMER] = lambda _: DONE
    return broker


def move_topic(broker):
    """Let the broker close the last channel that was opened, as when a topic moves."""
    (connection,) = broker.connections
    channel = connection.received.count(Kind.OPEN_CONSUMER)
    moved = error_to_wire(NotOwner("on purpose"))
    connection.send(Kind.ERROR, moved, channel)


@pytest.mark.parametrize("type_", TYPES)
async def test_seek_whose_channel_ends_before_its_answer_is_repeated(scripted, type_):
    asked = []

    def seek(message):
        asked.append(message.offset)
        if len(asked) == 1:
            move_topic(scripted)
        return DONE

    scripted.answers[Kind.SEEK] = seek
    async with (
        scripted.connect() as client,
        client.consumer(TOPIC, subscription="s", type=type_) as consumer,
    ):
        await consumer.seek(7)
        (connection,) = scripted.connections
        kinds = [Kind.OPEN_CONSUMER, Kind.SEEK]
        found = [each for each in connection.received if each in kinds]
        assert found == kinds * 2
    assert asked == [7, 7]


async def test_seek_is_not_repeated_if_its_channel_ends_after_its_answer(scripted):
    scripted.answers[Kind.SEEK] = lambda _: DONE
    async with (
        scripted.connect() as client,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        await consumer.seek(7)
        (connection,) = scripted.connections
        move_topic(scripted)
        while connection.received.count(Kind.OPEN_CONSUMER) < 2:
            await a_while()
        assert connection.received.count(Kind.SEEK) == 1


async def test_acks_that_fail_after_a_seek_are_not_sent_again(scripted):
    scripted.answers[Kind.SEEK] = lambda _: DONE
    async with (
        scripted.connect() as client,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        await consumer.ack(pydanube.MessageId(TOPIC, 3))
        while Kind.ACK not in scripted.connections[0].received:
            await a_while()
        await consumer.seek(0)
        # No answer to the acknowledgement has come.
        scripted.connections[0].transport.abort()
        while len(scripted.connections) < 2:
            await a_while()
        again = scripted.connections[1].received
        while Kind.CREDIT not in again:
            await a_while()
        assert Kind.ACK not in again
