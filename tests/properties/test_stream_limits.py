"""The limits of one connection of the native server."""

import asyncio

import pytest

from pydanube.wire.native.frames import RECEIVE_BUFFER_BYTES, header
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube.wire.turn_budget import UNITS_PER_TURN
from pydanube_broker.servers.native import connection as native
from pydanube_broker.servers.native.consumers import RANGES_PER_TURN
from pydanube_broker.servers.native.server import HANDSHAKING_MAX
from pydanube_broker.servers.settings.config import MIB, ListenConfig
from support.drivers.running import TOPIC, published, using
from support.fakes.stream_peer import connected
from support.fakes.streams import batch_frame, hello

SWEEPS_MAX = 4
TURNS = 20


async def turns(count=TURNS):
    for _ in range(count):
        await asyncio.sleep(0)


async def native_client(broker):
    """A client, and the broker's side of its connection."""
    peer = await connected(broker)
    return peer, list(broker.server.connections)[-1]


def sweep(broker, count=1):
    for _ in range(count):
        broker.server.sweep(SWEEPS_MAX)


# Silent clients.


@using(broker_options={"listen": ListenConfig(idle_timeout_s=7.5)})
async def test_welcome_tells_the_idle_timeout(broker):
    peer = await connected(broker, greet=False)
    welcome = await peer.ask(Kind.HELLO, hello())
    assert welcome.message.idle_timeout_s == 7.5


async def test_the_connection_of_a_silent_client_is_closed_with_a_reason(broker):
    peer, _ = await native_client(broker)
    sweep(broker, 1 + SWEEPS_MAX)
    assert not peer.is_closed.is_set()
    sweep(broker)
    answer = await peer.received.get()
    assert (answer.kind, answer.message.code) == (Kind.ERROR, "timed_out")
    await peer.is_closed.wait()
    assert broker.server.timed_out_total == 1


async def test_a_client_that_pings_keeps_its_connection(broker):
    peer, _ = await native_client(broker)
    for _ in range(5):
        sweep(broker, SWEEPS_MAX)
        assert (await peer.ask(Kind.PING, pb.Ping())).kind is Kind.PONG
    assert not peer.is_closed.is_set()


async def test_stalled_frame_closes_its_connection(broker):
    peer, _ = await native_client(broker)
    peer.transport.write(header(Kind.LIST_TOPICS, 0, 9, 1000))
    for _ in range(2 + SWEEPS_MAX):
        # A byte now and then does not count as progress.
        peer.transport.write(b"x")
        await turns()
        sweep(broker)
    await peer.is_closed.wait()


async def test_a_long_frame_that_arrives_slowly_keeps_its_connection(broker):
    peer, _ = await native_client(broker)
    peer.transport.write(header(Kind.PUBLISH, 1, 0, MIB))
    for _ in range(10):
        peer.transport.write(bytes(native.PROGRESS_BYTES_MIN))
        await turns()
        sweep(broker, SWEEPS_MAX)
    assert not peer.is_closed.is_set()


async def test_client_that_the_broker_does_not_read_is_not_silent(broker):
    peer, connection = await native_client(broker)
    connection.pause("room")
    sweep(broker, 3 * SWEEPS_MAX)
    await turns()
    assert not peer.is_closed.is_set()
    # The broker, which does not see its PING, sends it a PONG.
    assert {peer.received.get_nowait().kind for _ in range(5)} == {Kind.PONG}
    connection.unpause("room")
    assert (await peer.ask(Kind.PING, pb.Ping())).kind is Kind.PONG


async def test_client_that_reads_is_not_silent(broker):
    peer, connection = await native_client(broker)
    unsent = iter(range(100, 0, -1))
    connection._transport.get_write_buffer_size = lambda: next(unsent)
    connection.pause_writing()
    sweep(broker, 3 * SWEEPS_MAX)
    assert not peer.is_closed.is_set()
    connection._transport.get_write_buffer_size = lambda: 1
    sweep(broker, 3 + SWEEPS_MAX)
    await peer.is_closed.wait()


async def test_a_standby_takes_over_from_a_silent_consumer(broker, client):
    await published(client, b"m")
    frozen, _ = await native_client(broker)
    await frozen.ask(
        Kind.OPEN_CONSUMER,
        pb.OpenConsumer(
            topic=TOPIC,
            subscription="s",
            name="frozen",
            type=pb.FAILOVER,
            position=pb.Position(start=pb.EARLIEST),
        ),
        1,
    )
    async with client.consumer(
        TOPIC, subscription="s", type="failover", name="standby"
    ) as standby:
        for _ in range(3 + SWEEPS_MAX):
            await client.cluster.describe_broker()
            await client.topics.describe(TOPIC)
            sweep(broker)
        assert (await standby.receive(timeout_s=60)).payload == b"m"


# The number of connections.


@using(broker_options={"listen": ListenConfig(connections_max=2)})
async def test_connection_beyond_the_maximum_gets_the_reason(broker):
    first = await connected(broker)
    await connected(broker)
    third = await connected(broker, greet=False)
    answer = await third.ask(Kind.HELLO, hello())
    assert (answer.kind, answer.message.code) == (Kind.ERROR, "quota_exceeded")
    assert "connections_max" in answer.message.message
    await third.is_closed.wait()
    first.transport.close()
    await turns()
    await connected(broker)
    assert broker.server.refused_total == 1


@pytest.mark.slow
@using(broker_options={"listen": ListenConfig(connections_max=1)})
async def test_connections_without_hello_do_not_block_others(broker):
    silent = [await connected(broker, greet=False) for _ in range(HANDSHAKING_MAX + 1)]
    await turns()
    assert silent[0].is_closed.is_set()
    assert not silent[1].is_closed.is_set()
    await connected(broker)


# Memory.


async def test_an_idle_connection_has_no_receive_buffer(broker):
    peer, connection = await native_client(broker)
    await peer.ask(Kind.PING, pb.Ping())
    assert connection._protocol.reader._view is None


@using(
    broker_options={"listen": ListenConfig(receive_bytes_max=MIB, frame_bytes_max=MIB)}
)
async def test_long_frames_wait_for_memory_in_the_order_of_their_arrival(broker):
    peers = [(await native_client(broker))[0] for _ in range(3)]
    memory = broker.server.receive_memory
    frame = header(Kind.LIST_TOPICS, 0, 9, 700_000) + bytes(RECEIVE_BUFFER_BYTES)
    for peer in peers:
        peer.transport.write(frame)
        await turns()
    assert memory.reserved_bytes == 700_000
    assert len(memory._waiting) == 2
    peers[0].transport.close()
    await turns()
    connections = list(broker.server.connections)
    assert memory.holds(connections[0])
    assert not memory.holds(connections[1])


@using(
    broker_options={"listen": ListenConfig(receive_bytes_max=MIB, frame_bytes_max=MIB)}
)
async def test_stalled_frame_loses_its_memory_to_waiting_frames(broker):
    idle, _ = await native_client(broker)
    active, connection = await native_client(broker)
    frame = header(Kind.LIST_TOPICS, 0, 9, 700_000)
    idle.transport.write(frame + bytes(RECEIVE_BUFFER_BYTES))
    await turns()
    active.transport.write(frame + bytes(RECEIVE_BUFFER_BYTES))
    await turns()
    sweep(broker, 2)
    await idle.is_closed.wait()
    await turns()
    assert broker.server.receive_memory.holds(connection)


# Time of the event loop.


def note_frames(connection, notes, note):
    """Add *note* to *notes* for each frame that *connection* acts on."""
    take = connection._on_frame

    def note_and_take(frame):
        notes.append(note)
        take(frame)

    connection._on_frame = note_and_take


async def open_channels(peer):
    await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(topic=TOPIC, name="p", policy=pb.TopicPolicy()),
        1,
    )
    await peer.ask(
        Kind.OPEN_CONSUMER, pb.OpenConsumer(topic=TOPIC, subscription="s", name="c"), 2
    )


CHANNEL_FRAMES = {
    Kind.CREDIT: (pb.Credit(messages=1), 2),
    Kind.ACK: (pb.Ack(through=1), 2),
    Kind.NACK: (pb.Nack(), 2),
    Kind.EXTEND: (pb.Extend(), 2),
    Kind.RELEASE: (pb.Release(), 2),
}
REQUESTS = {
    Kind.PING: (pb.Ping(), 0),
    Kind.LOOKUP: (pb.Lookup(topic=TOPIC), 0),
    Kind.LIST_TOPICS: (pb.ListTopics(), 0),
    Kind.FETCH: (pb.Fetch(topic=TOPIC, bytes_max=1), 0),
    Kind.SEEK: (pb.Seek(offset=0), 2),
}


def frames_of(kind, peer, count):
    """The bytes of *count* frames of one kind."""
    machine = peer.machine
    if kind is Kind.PUBLISH:
        batch = batch_frame(b"", producer="p", producer_id=77)
        return b"".join(machine.send_batch(kind, batch, 1)) * count
    if kind is Kind.OPEN_PRODUCER:
        return b"".join(
            machine.request(
                kind,
                pb.OpenProducer(
                    topic=f"{TOPIC}-{n}",
                    name="x",
                    policy=pb.TopicPolicy(),
                ),
                n,
            )[1]
            for n in range(10, 10 + count)
        )
    if kind in CHANNEL_FRAMES:
        return machine.send(kind, *CHANNEL_FRAMES[kind]) * count
    return b"".join(machine.request(kind, *REQUESTS[kind])[1] for _ in range(count))


@pytest.mark.parametrize(
    "kind",
    [
        Kind.PING,
        Kind.LOOKUP,
        Kind.LIST_TOPICS,
        Kind.FETCH,
        Kind.CREDIT,
        Kind.ACK,
        Kind.NACK,
        Kind.EXTEND,
        Kind.SEEK,
        Kind.PUBLISH,
        Kind.OPEN_PRODUCER,
    ],
)
async def test_flood_is_handled_in_parts_between_other_connections(broker, kind):
    flood = await connected(broker)
    await open_channels(flood)
    other = await connected(broker)
    acted_on = []
    flooding, well_behaved = broker.server.connections
    note_frames(flooding, acted_on, "flood")
    note_frames(well_behaved, acted_on, "other")
    flood.transport.write(frames_of(kind, flood, 1000))
    other.transport.write(other.machine.request(Kind.PING, pb.Ping())[1])
    assert (await other.received.get()).kind is Kind.PONG
    units = native._UNITS.get(kind, native._REQUEST_UNITS)
    assert acted_on.index("other") <= UNITS_PER_TURN // units + 1


async def test_frames_that_are_dropped_count_as_work(broker):
    flood = await connected(broker)
    await open_channels(flood)
    [connection] = broker.server.connections
    batch = batch_frame(b"", producer="p", producer_id=77)
    frame = b"".join(flood.machine.send_batch(Kind.PUBLISH, batch, 1))
    # The first one closes the channel.
    flood.transport.write(frame * 1000)
    assert (await flood.received.get()).message.code == "producer_fenced"
    assert connection._protocol.reader.has_partial_frame
    assert connection._pauses == {"turn"}


async def test_ack_of_many_ranges_is_applied_in_parts(broker):
    async with broker.connect() as client:
        await published(client, *[b"m"] * 10)
    peer = await connected(broker)
    await peer.ask(
        Kind.OPEN_CONSUMER,
        pb.OpenConsumer(
            topic=TOPIC,
            subscription="s",
            name="c",
            position=pb.Position(start=pb.EARLIEST),
        ),
        1,
    )
    [connection] = broker.server.connections
    subscription = connection.channels[1].subscription
    sizes, ack = [], subscription.ack

    def count(ranges, through):
        sizes.append(len(ranges))
        ack(ranges, through)

    subscription.ack = count
    many = 3 * RANGES_PER_TURN
    ranges = pb.OffsetRanges(base=[0] * many, end=[5] * many)
    answer = await peer.ask(Kind.ACK, pb.Ack(ranges=ranges), 1)
    assert answer.kind is Kind.OK
    assert sizes == [RANGES_PER_TURN] * 3 + [0]
    described = await peer.ask(
        Kind.DESCRIBE_SUBSCRIPTION,
        pb.DescribeSubscription(topic=TOPIC, subscription="s"),
    )
    assert described.message.cursor == 5


async def test_number_of_running_openings_is_limited(broker):
    peer, _ = await native_client(broker)
    running, counts = set(), []
    begin = broker.broker.producers.open

    async def count(*args, **options):
        running.add(asyncio.current_task())
        counts.append(len(running))
        try:
            return await begin(*args, **options)
        finally:
            running.discard(asyncio.current_task())

    broker.broker.producers.open = count
    peer.transport.write(frames_of(Kind.OPEN_PRODUCER, peer, 30))
    answers = [await peer.received.get() for _ in range(30)]
    assert {each.kind for each in answers} == {Kind.PRODUCER_OPENED}
    assert len(counts) == 30
    assert max(counts) == native.OPENINGS_MAX


async def test_opening_closed_before_its_turn_is_cancelled(broker):
    peer, connection = await native_client(broker)
    count = native.OPENINGS_MAX + 1
    opening = frames_of(Kind.OPEN_PRODUCER, peer, count)
    last = 9 + count
    _, closing = peer.machine.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), last)
    peer.transport.write(opening + closing)
    answers = [await peer.received.get() for _ in range(count + 1)]
    [closed] = [each for each in answers if each.kind is Kind.OK]
    [given_up] = [each for each in answers if each.kind is Kind.ERROR]
    assert closed.channel == given_up.channel == last
    assert given_up.message.code == "closed"
    assert connection._requests == 0


async def test_large_requests_that_are_not_answered_pause_the_connection(broker):
    peer, connection = await native_client(broker)
    async with broker.connect() as client:
        await client.topics.create(TOPIC)
    for _ in range(4):
        fetch = pb.Fetch(topic=TOPIC, bytes_max=1, wait_s=30)
        body = fetch.SerializeToString()
        # An unknown field of 5 MiB.
        body += b"\xfa\x7f" + b"\x80\x80\xc0\x02" + bytes(5 * MIB)
        peer.machine._pending_requests[peer.machine._free_correlation()] = None
        correlation = peer.machine._correlation
        peer.transport.write(header(Kind.FETCH, 0, correlation, len(body)) + body)
    await turns(5000)
    assert "requests" in connection._pauses
    assert connection._request_bytes <= native.REQUEST_BYTES_MAX + 6 * MIB


async def test_client_that_does_not_read_answers_is_not_read(broker):
    peer, connection = await native_client(broker)
    connection.pause_writing()
    peer.transport.write(frames_of(Kind.PING, peer, 10))
    await turns()
    assert peer.received.empty()
    connection.resume_writing()
    for _ in range(10):
        assert (await peer.received.get()).kind is Kind.PONG


async def test_frames_sent_before_a_close_are_handled(broker):
    peer, connection = await native_client(broker)
    acted_on = []
    note_frames(connection, acted_on, "frame")
    peer.transport.write(frames_of(Kind.PING, peer, 1000))
    peer.transport.close()
    await turns(500)
    assert not broker.server.connections
    assert len(acted_on) == 1000


async def test_fetches_end_with_their_connection(broker):
    async with broker.connect() as client:
        await client.topics.create(TOPIC)
    peer, connection = await native_client(broker)
    fetch = pb.Fetch(topic=TOPIC, bytes_max=1, wait_s=30)
    peer.transport.write(peer.machine.request(Kind.FETCH, fetch)[1])
    await turns()
    assert connection._waiting
    peer.transport.close()
    await turns()
    assert not connection._waiting


async def test_a_channel_may_be_opened_again_as_soon_as_its_opening_has_failed(broker):
    peer, connection = await native_client(broker)
    opening = pb.OpenProducer(topic="/default/missing", name="p")
    _, first = peer.machine.request(Kind.OPEN_PRODUCER, opening, 1)
    peer.transport.write(first)
    answered = asyncio.Event()
    answer = connection.answer

    def answer_and_open_again(frame, message):
        answer(frame, message)
        if not answered.is_set():
            answered.set()
            again = peer.machine.request(Kind.OPEN_PRODUCER, opening, 1)[1]
            reader = connection._protocol.reader
            reader.get_buffer()[: len(again)] = again
            connection.buffer_updated(len(again))

    connection.answer = answer_and_open_again
    failures = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context)
    )
    for _ in range(2):
        assert (await peer.received.get()).kind is Kind.ERROR
    await turns()
    assert not failures
    assert not connection._opening


async def test_closing_connection_schedules_no_turns(broker):
    _, connection = await native_client(broker)
    connection.pause("room")
    begun = []
    begin = connection._start_turn

    def count():
        begun.append(None)
        begin()

    connection._start_turn = count
    connection.unpause("room")
    connection.abort()
    await turns()
    assert len(begun) == 1
