"""Clients of MQTT use a broker with several processes as they use one process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import pytest

import pydanube
from pydanube_mqtt.pure.homes import home_of
from pydanube_mqtt.wire.packets import (
    V5,
    Ack,
    PacketType,
    Ping,
    Publish,
    Reason,
)
from support.drivers.mqtt_clients import (
    Closed,
    mqtt_client,
    mqtt_processes,
    persistent,
    take,
    trusting,
)
from support.servers.certificates import write_certificates

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COUNT = 3
SESSION = {name: each for name, each in persistent(V5).items() if name != "version"}
CLIENTS = [f"client-{number}" for number in range(6)]
"""Their homes are all processes."""


@asynccontextmanager
async def connected(broker, client_id, **fields):
    """Connect a client, perhaps while the process with its session starts again."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(60):
            while True:
                try:
                    client = await stack.enter_async_context(
                        mqtt_client(broker, client_id, **fields)
                    )
                    break
                except (Closed, OSError):
                    await asyncio.sleep(0.1)
        yield client


async def waiting(client):
    """Return what came until the answer to a ping, after acknowledging it."""
    client.send(Ping())
    payloads = []
    while isinstance(packet := await client.receive(), Publish):
        payloads.append(packet.payload)
        if packet.qos:
            client.send(Ack(PacketType.PUBACK, packet.packet_id))
    return payloads


async def retained(client, topic_filter):
    """Return the retained messages that a new subscription gets."""
    await client.unsubscribe(topic_filter)
    await client.subscribe(topic_filter)
    return await waiting(client)


def test_homes_of_the_clients_are_all_processes():
    assert {home_of(each, COUNT) for each in CLIENTS} == {1, 2, 3}


async def test_clients_of_all_processes_reach_each_other(tmp_path):
    rules = [
        {"filter": f"{name}/#", "topic": f"/default/{name}", "reliable": name != "u"}
        for name in "abcdefu"
    ]
    sessions_max = 2 * len(CLIENTS)
    with mqtt_processes(
        tmp_path, COUNT, rules=rules, sessions_max=sessions_max
    ) as broker:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(mqtt_client(broker, each))
                for each in CLIENTS
            ]
            for client in clients:
                assert await client.subscribe("#", qos=1) == [Reason.GRANTED_QOS_1]
            for number, client in enumerate(clients):
                for name in "abcdefu":
                    await client.publish(
                        f"{name}/x", b"%d" % number, retain=name == "a"
                    )
            wanted = sorted(
                (f"{name}/x", b"%d" % number)
                for name in "abcdefu"
                for number in range(len(clients))
            )
            for client in clients:
                got = [await client.take() for _ in wanted]
                assert sorted((each.topic, each.payload) for each in got) == wanted
                for name in "abcdefu":
                    # Those of one topic are in order.
                    order = [each.payload for each in got if each.topic[0] == name]
                    assert order == sorted(order)
            # A retained message is the last one, for clients of each process.
            for each in CLIENTS:
                name = next(
                    f"{each}-{i}"
                    for i in range(99)
                    if home_of(f"{each}-{i}", COUNT) == home_of(each, COUNT)
                )
                client = await stack.enter_async_context(mqtt_client(broker, name))
                async with asyncio.timeout(30):
                    # The other processes learn of it a moment later.
                    while await retained(client, "a/#") != [b"5"]:
                        continue
            # The limit is that of the broker, whose processes have four sessions each.
            for each in CLIENTS:
                refused = await stack.enter_async_context(mqtt_client(broker))
                answer = await refused.connect(f"{each}-more")
                assert answer.reason is Reason.QUOTA_EXCEEDED
        async with pydanube.connect(broker.stream_url) as native:
            for name in "abcdef":
                found = [m async for b in native.read(f"/default/{name}") for m in b]
                assert [each.payload for each in found] == [b"%d" % i for i in range(6)]
                assert [each.producer for each in found] == CLIENTS


@pytest.mark.soak
async def test_shared_subscription_has_members_at_all_processes(tmp_path):
    with mqtt_processes(tmp_path, COUNT) as broker:
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(mqtt_client(broker, each))
                for each in CLIENTS
            ]
            for member in members:
                await member.subscribe("$share/group/x", qos=1)
            publisher = await stack.enter_async_context(mqtt_client(broker, "p"))
            sent = [b"%d" % number for number in range(30)]
            for payload in sent:
                await publisher.publish("x", payload)
            got = {member: [] for member in members}
            async with asyncio.timeout(60):
                while sum(map(len, got.values())) < len(sent):
                    for member in members:
                        got[member] += await waiting(member)
            assert sorted(chain(*got.values()), key=int) == sent
            assert sum(map(bool, got.values())) > 1


@pytest.mark.soak
async def test_a_client_id_is_taken_over_whichever_process_accepts(tmp_path):
    files = write_certificates(tmp_path)
    certificate, key = map(str, files["server"])
    tls = {"certificate_file": certificate, "key_file": key}
    with mqtt_processes(tmp_path, COUNT, tls=tls) as broker:
        async with AsyncExitStack() as stack:
            previous = None
            for number in range(8):
                # Most connections are relayed, because TLS cannot be passed on.
                client = await stack.enter_async_context(
                    mqtt_client(broker, "same", tls=trusting(files["ca"][0]), **SESSION)
                )
                if previous is None:
                    await client.subscribe("a", qos=1)
                else:
                    (end,) = await previous.ends()
                    assert end.reason is Reason.SESSION_TAKEN_OVER
                    assert client.answer.session_present
                await client.publish("a", b"%d" % number)
                assert (await client.take()).payload == b"%d" % number
                previous = client


@pytest.mark.soak
async def test_sessions_and_messages_survive_the_end_of_each_process(tmp_path):
    with mqtt_processes(tmp_path, COUNT) as broker:
        async with AsyncExitStack() as stack:
            for each in CLIENTS:
                client = await stack.enter_async_context(
                    mqtt_client(broker, each, **SESSION)
                )
                await client.subscribe("t", qos=1)
            publisher = await stack.enter_async_context(
                mqtt_client(broker, "publisher")
            )
            await publisher.publish("t", b"before")
        for victim in broker.children():
            os.kill(victim, signal.SIGKILL)
        sent = [b"before"]
        for each in CLIENTS:
            async with connected(broker, f"p-{each}") as publisher:
                sent.append(each.encode())
                await publisher.publish("t", sent[-1])
        for each in CLIENTS:
            async with connected(broker, each, **SESSION) as client:
                assert client.answer.session_present
                assert await take(client, len(sent)) == sent
