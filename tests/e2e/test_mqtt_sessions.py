"""Sessions of MQTT survive connections; retained messages, wills and groups work."""

from __future__ import annotations

import asyncio

import pytest

import pydanube
from pydanube_mqtt.wire.encoding import encode
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    PacketType,
    Property,
    Publish,
    Reason,
    Will,
)
from support.drivers.mqtt_clients import (
    DEFAULT_TOPIC,
    VERSIONS,
    mqtt_broker,
    mqtt_broker_of,
    mqtt_client,
    persistent,
    quiet,
    rule,
    take,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.soak)])
async def broker(tmp_path, request):
    async with mqtt_broker_of(tmp_path, request.param) as running:
        yield running


# Exactly once.


@VERSIONS
async def test_a_message_of_qos_2_that_is_sent_again_is_stored_once(broker, version):
    again = Publish(topic="a", payload=b"x", qos=2, packet_id=5, is_duplicate=True)
    async with mqtt_client(broker, "s", **persistent(version)) as client:
        client.send(Publish(topic="a", payload=b"x", qos=2, packet_id=5))
        assert (await client.expect(Ack)).type is PacketType.PUBREC
    async with mqtt_client(broker, "s", **persistent(version)) as client:
        assert client.answer.session_present
        client.send(again)
        assert (await client.expect(Ack)).type is PacketType.PUBREC
        client.send(Ack(PacketType.PUBREL, 5))
        assert (await client.expect(Ack)).type is PacketType.PUBCOMP
    async with pydanube.connect(broker.stream_url) as client:
        described = await client.topics.describe(DEFAULT_TOPIC)
    assert described.end_offset == 1


async def test_a_message_of_qos_2_is_not_released_before_it_is_stored(broker):
    async with mqtt_client(broker, "s") as client:
        message = Publish(topic="a", payload=b"x", qos=2, packet_id=5)
        release = Ack(PacketType.PUBREL, 5)
        client.send_bytes(encode(message, V5) + encode(release, V5))
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.PROTOCOL_ERROR


@VERSIONS
async def test_what_was_not_acknowledged_is_sent_again(broker, version):
    async with mqtt_client(broker, "s", **persistent(version)) as client:
        await client.subscribe("a", qos=2)
        async with mqtt_client(broker, "p") as publisher:
            for qos in (1, 2, 2):
                await publisher.publish("a", str(qos).encode(), qos=qos)
        one, two, three = [await client.expect(Publish) for _ in range(3)]
        client.send(Ack(PacketType.PUBREC, three.packet_id))
        assert (await client.expect(Ack)).type is PacketType.PUBREL
    async with mqtt_client(broker, "s", **persistent(version)) as client:
        for each in (one, two):
            each.is_duplicate = True
            assert await client.expect(Publish) == each
        release = await client.expect(Ack)
        assert release == Ack(PacketType.PUBREL, three.packet_id)
        await quiet(client)


# Sessions.


@VERSIONS
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_session_gets_what_was_published_while_it_was_away(
    tmp_path, version, restarts
):
    async def publish(broker, begin, end):
        async with mqtt_client(broker, "p") as publisher:
            for number in range(begin, end):
                await publisher.publish("a/b", str(number).encode())
                await publisher.publish("other", b"not wanted")

    async def resume(broker, begin, end):
        async with mqtt_client(broker, "s", **persistent(version)) as client:
            assert client.answer.session_present
            expected = [str(number).encode() for number in range(begin, end)]
            assert await take(client, end - begin) == expected
            await quiet(client)
            await client.disconnect()

    async with mqtt_broker(tmp_path) as broker:
        async with mqtt_client(broker, "s", **persistent(version)) as client:
            assert not client.answer.session_present
            await client.subscribe("a/+", qos=1)
            await publish(broker, 0, 5)
            await take(client, 5)
            await client.disconnect()
        await publish(broker, 5, 10)
        if not restarts:
            await resume(broker, 5, 10)
    if restarts:
        async with mqtt_broker(tmp_path) as broker:
            await publish(broker, 10, 15)
            await resume(broker, 5, 15)


async def test_a_clean_session_forgets(broker):
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        await client.subscribe("a", qos=1)
    async with mqtt_client(broker, "s", clean_start=True) as client:
        assert not client.answer.session_present
        await client.publish("a", b"x")
        await quiet(client)
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        assert not client.answer.session_present


async def test_disconnect_can_end_a_session(broker):
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        await client.disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 0})
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        assert not client.answer.session_present


async def test_the_second_connection_of_a_client_takes_over(broker):
    async with (
        mqtt_client(broker, "s", **persistent(V5)) as first,
        mqtt_client(broker, "s", **persistent(V5)) as second,
    ):
        assert second.answer.session_present
        (goodbye,) = await first.ends()
        assert goodbye.reason is Reason.SESSION_TAKEN_OVER
        await second.subscribe("a")
        await second.publish("a", b"x", qos=0)
        assert (await second.take()).payload == b"x"


async def test_clients_without_an_id_get_one(broker):
    async with mqtt_client(broker, "") as one, mqtt_client(broker, "") as two:
        names = {
            each.answer.properties[Property.ASSIGNED_CLIENT_IDENTIFIER]
            for each in (one, two)
        }
        assert len(names) == 2
    async with mqtt_client(broker, version=V311) as client:
        answer = await client.connect("", clean_start=False)
        assert answer.reason is Reason.CLIENT_IDENTIFIER_NOT_VALID
        assert await client.ends() == []


async def test_a_slow_client_gets_everything_from_the_log(tmp_path):
    limits = {"queue_messages_max": 5, "in_flight_max": 3}
    count = 100
    async with (
        mqtt_broker(tmp_path, **limits) as broker,
        mqtt_client(broker, "slow") as slow,
        mqtt_client(broker, "p") as publisher,
    ):
        await slow.subscribe("a", qos=1)
        for number in range(count):
            await publisher.publish("a", str(number).encode())
        expected = [str(number).encode() for number in range(count)]
        assert await take(slow, count) == expected
        # It has caught up, and gets new messages at once.
        await publisher.publish("a", b"last")
        assert await take(slow, 1) == [b"last"]


async def test_no_more_is_in_flight_than_the_client_accepts(broker):
    properties = {Property.RECEIVE_MAXIMUM: 2}
    async with mqtt_client(broker, "c", properties=properties) as client:
        await client.subscribe("a", qos=1)
        async with mqtt_client(broker, "p") as publisher:
            for _ in range(4):
                await publisher.publish("a", b"x")
        first = await client.expect(Publish)
        await client.expect(Publish)
        await quiet(client)
        client.send(Ack(PacketType.PUBACK, first.packet_id))
        await client.expect(Publish)
        await quiet(client)


# Retained messages.


@pytest.mark.parametrize("restarts", [False, True])
async def test_new_subscribers_get_the_retained_message(tmp_path, restarts):
    async def check(broker):
        for version in (V311, V5):
            async with mqtt_client(broker, version=version) as client:
                await client.connect()
                await client.subscribe("rooms/+/light", qos=1)
                message = await client.take()
                assert (message.topic, message.payload) == ("rooms/1/light", b"off")
                assert message.retain
                await quiet(client)

    async with mqtt_broker(tmp_path) as broker:
        async with mqtt_client(broker, "p") as publisher:
            await publisher.publish("rooms/1/light", b"on", retain=True)
            await publisher.publish("rooms/1/light", b"off", retain=True)
            await publisher.publish("rooms/2/light", b"on", retain=True)
            await publisher.publish("rooms/2/light", b"", retain=True)
            await publisher.publish("rooms/3/light", b"on")
        if not restarts:
            await check(broker)
    if restarts:
        async with mqtt_broker(tmp_path) as broker:
            await check(broker)


async def test_retain_handling_holds(broker):
    async with mqtt_client(broker, "c") as client:
        await client.publish("a", b"x", retain=True)
        await client.subscribe("a", retain_handling=2)
        await quiet(client)
        await client.subscribe("a", retain_handling=1)
        await quiet(client)
        await client.subscribe("a", retain_handling=0)
        assert (await client.take()).payload == b"x"
        await client.unsubscribe("a")
        await client.subscribe("a", retain_handling=1)
        assert (await client.take()).payload == b"x"


async def test_retained_messages_are_bounded(tmp_path):
    async with (
        mqtt_broker(tmp_path, retained_messages_max=1) as broker,
        mqtt_client(broker, "c") as client,
    ):
        assert await client.publish("a", b"1", retain=True) == Reason.SUCCESS
        assert await client.publish("b", b"1", retain=True) == Reason.QUOTA_EXCEEDED
        assert await client.publish("a", b"2", retain=True) == Reason.SUCCESS


# Wills.


@VERSIONS
async def test_the_will_of_a_lost_client_is_published(broker, version):
    will = Will(topic="gone", payload=b"device", qos=1, retain=True)
    async with mqtt_client(broker, "w") as watcher:
        await watcher.subscribe("gone", qos=1)
        async with mqtt_client(broker, "a", version=version, will=will) as client:
            client.abort()
            message = await watcher.take()
            assert (message.payload, message.qos) == (b"device", 1)
        async with mqtt_client(broker, "b", version=version, will=will) as client:
            await client.disconnect()
        await quiet(watcher)
        await watcher.unsubscribe("gone")
        await watcher.subscribe("gone")
        assert (await watcher.take()).retain


async def test_disconnect_may_ask_for_the_will(broker):
    will = Will(topic="gone", payload=b"x")
    async with mqtt_client(broker, "w") as watcher:
        await watcher.subscribe("gone")
        async with mqtt_client(broker, "a", will=will) as client:
            await client.disconnect(reason=Reason.DISCONNECT_WITH_WILL)
        assert (await watcher.take()).payload == b"x"


async def test_a_delayed_will_waits_for_the_client(broker):
    delay = {Property.WILL_DELAY_INTERVAL: 3600}
    will = Will(topic="gone", payload=b"x", properties=delay)
    async with mqtt_client(broker, "w") as watcher:
        await watcher.subscribe("gone")
        async with mqtt_client(broker, "a", will=will, **persistent(V5)) as client:
            client.abort()
        async with mqtt_client(broker, "a", **persistent(V5)) as client:
            await client.disconnect()
        await quiet(watcher)
        async with mqtt_client(broker, "a", will=will, **persistent(V5)) as client:
            client.abort()
        # The will comes at the latest when the session ends.
        async with mqtt_client(broker, "a", clean_start=True):
            assert (await watcher.take()).payload == b"x"


# Shared subscriptions.


@VERSIONS
async def test_members_of_a_group_share_the_messages(broker, version):
    count = 40
    async with (
        mqtt_client(broker, "1", version=version) as one,
        mqtt_client(broker, "2", version=version) as two,
        mqtt_client(broker, "p") as publisher,
    ):
        for member in (one, two):
            assert await member.subscribe("$share/g/a/#", qos=2) == [
                Reason.GRANTED_QOS_1
            ]
        for number in range(count):
            await publisher.publish(f"a/{number}", str(number).encode())
        await publisher.publish("b", b"not for the group")
        received = [[], []]
        async with asyncio.TaskGroup() as tasks:

            async def receive(member, payloads):
                while True:
                    payloads.append((await member.take()).payload)
                    if sum(map(len, received)) == count:
                        for task in receiving:
                            task.cancel()

            receiving = [
                tasks.create_task(receive(member, payloads))
                for member, payloads in zip((one, two), received, strict=True)
            ]
    found = sorted(map(int, received[0] + received[1]))
    assert found == list(range(count))
    assert all(received)


async def test_another_member_gets_what_a_lost_one_has_not_acknowledged(broker):
    async with (
        mqtt_client(broker, "1") as one,
        mqtt_client(broker, "p") as publisher,
    ):
        await one.subscribe("$share/g/a", qos=1)
        await publisher.publish("a", b"x")
        await one.expect(Publish)
        async with mqtt_client(broker, "2") as two:
            await two.subscribe("$share/g/a", qos=1)
            one.abort()
            assert (await two.take()).payload == b"x"


async def test_messages_wait_for_a_group_of_sessions_that_are_away(broker):
    async with mqtt_client(broker, "1", **persistent(V5)) as one:
        await one.subscribe("$share/g/a", qos=1)
        await one.disconnect()
    async with mqtt_client(broker, "p") as publisher:
        await publisher.publish("a", b"x")
    async with mqtt_client(broker, "1", **persistent(V5)) as one:
        assert (await one.take()).payload == b"x"
        await one.unsubscribe("$share/g/a")
    async with pydanube.connect(broker.stream_url) as client:
        # The broker's subscription is deleted soon.
        while (await client.topics.describe(DEFAULT_TOPIC)).subscriptions:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_groups_share_topics_that_are_not_reliable(tmp_path):
    rules = (rule("#", "/default/direct", reliable=False),)
    async with (
        mqtt_broker(tmp_path, rules=rules) as broker,
        mqtt_client(broker, "1", **persistent(V5)) as one,
        mqtt_client(broker, "p") as publisher,
    ):
        await one.subscribe("$share/g/a/#", "b", qos=1)
        for number in range(300):
            await publisher.publish("a/x", str(number).encode())
            assert (await one.take()).payload == str(number).encode()
        await publisher.publish("b", b"x")
        assert (await one.take()).payload == b"x"


async def test_a_session_is_told_nothing_of_topics_it_has_left(broker):
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        await client.subscribe("a", qos=1)
        await client.unsubscribe("a")
    async with mqtt_client(broker, "p") as publisher:
        await publisher.publish("a", b"x")
    async with mqtt_client(broker, "s", **persistent(V5)) as client:
        assert client.answer.session_present
        await quiet(client)
