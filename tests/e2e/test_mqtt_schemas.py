"""Payloads of MQTT clients match the schema that their rule names, or go elsewhere."""

from __future__ import annotations

import json

import msgspec
import pytest

import pydanube
from pydanube.model.dead_letters import ORIGINAL_TOPIC, REASON
from pydanube_mqtt.rule_config import MqttRule
from pydanube_mqtt.wire.packets import V5, V311, Reason, Will
from support.drivers.mqtt_clients import (
    VERSIONS,
    Closed,
    mqtt_broker,
    mqtt_client,
    rule,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC, DEAD = "/default/readings", "/default/invalid-readings"
QOS = pytest.mark.parametrize("qos", [1, 2])
VALID, INVALID = b'{"celsius": 21.5}', b'{"celsius": "warm"}'


def schema(*names):
    properties = {name: {"type": "number"} for name in names}
    document = {"type": "object", "properties": properties, "required": ["celsius"]}
    return pydanube.Schema.json_schema(json.dumps(document))


def readings(**fields):
    return (rule("readings/#", TOPIC, schema="readings", **fields),)


async def registered(broker, *names, policy=pydanube.SchemaPolicy.ENFORCE):
    async with pydanube.connect(broker.stream_url) as client:
        await client.schemas.register("readings", schema("celsius", *names))
        if policy:
            await client.topics.create(TOPIC, exist_ok=True)
            await client.topics.configure(
                TOPIC, schema=pydanube.TopicSchema(subject="readings", policy=policy)
            )


async def payloads_of(broker, topic):
    async with pydanube.connect(broker.stream_url) as client:
        return [p async for batch in client.read(topic) for p in batch.payloads]


@VERSIONS
@QOS
async def test_valid_payloads_are_stored_with_their_schema(tmp_path, version, qos):
    async with mqtt_broker(tmp_path, rules=readings()) as broker:
        await registered(broker)
        async with mqtt_client(broker, "d", version=version) as client:
            for _ in range(3):
                assert await client.publish("readings/1", VALID, qos) == 0
        async with pydanube.connect(broker.stream_url) as client:
            values = [v async for b in client.read(TOPIC) for v in b.values()]
            assert values == [{"celsius": 21.5}] * 3


@VERSIONS
@QOS
@pytest.mark.parametrize("policy", [pydanube.SchemaPolicy.ENFORCE, None])
async def test_invalid_payloads_are_dropped_if_the_rule_says_so(
    tmp_path, version, qos, policy
):
    async with mqtt_broker(tmp_path, rules=readings(on_invalid="drop")) as broker:
        await registered(broker, policy=policy)
        async with mqtt_client(broker, "d", version=version) as client:
            for payload in (INVALID, VALID, b"no JSON", INVALID):
                assert await client.publish("readings/1", payload, qos) == 0
            assert await client.publish("readings/1", INVALID, qos, retain=True) == 0
        assert await payloads_of(broker, TOPIC) == [VALID]
        async with mqtt_client(broker, "e") as client:
            await client.subscribe("readings/#")
            assert await client.publish("readings/2", VALID) == 0
            # Nothing invalid was retained.
            assert (await client.take()).topic == "readings/2"


@VERSIONS
async def test_invalid_payloads_become_dead_letters_if_the_rule_says_so(
    tmp_path, version
):
    rules = readings(on_invalid="dead_letter", dead_letter_topic=DEAD, key="client_id")
    async with mqtt_broker(tmp_path, rules=rules) as broker:
        await registered(broker)
        async with mqtt_client(broker, "d", version=version) as client:
            for payload in (INVALID, VALID):
                assert await client.publish("readings/1", payload) == 0
        assert await payloads_of(broker, TOPIC) == [VALID]
        async with pydanube.connect(broker.stream_url) as client:
            [batch] = [each async for each in client.read(DEAD)]
            [message] = batch
        assert (message.payload, message.key) == (INVALID, "d")
        assert message.attributes[ORIGINAL_TOPIC] == TOPIC
        assert message.attributes["mqtt.topic"] == "readings/1"
        assert "version 1 of the schema readings" in message.attributes[REASON]


async def test_invalid_payloads_are_refused_by_default(tmp_path):
    async with mqtt_broker(tmp_path, rules=readings()) as broker:
        await registered(broker)
        async with mqtt_client(broker, "d", version=V5) as client:
            refused = await client.publish("readings/1", INVALID)
            assert refused is Reason.PAYLOAD_FORMAT_INVALID
            assert await client.publish("readings/1", VALID) == 0
        async with mqtt_client(broker, "e", version=V311) as client:
            with pytest.raises(Closed):
                await client.publish("readings/1", INVALID)
        assert await payloads_of(broker, TOPIC) == [VALID]


async def test_a_rule_may_name_a_version_or_follow_the_latest(tmp_path):
    rules = (
        rule("old/#", "/default/old", schema="readings", schema_version=1),
        rule("new/#", "/default/new", schema="readings"),
    )
    async with mqtt_broker(tmp_path, rules=rules) as broker:
        await registered(broker, policy=None)
        await registered(broker, "humidity", policy=None)
        async with mqtt_client(broker, "d") as client:
            for topic in ("old/1", "new/1"):
                assert await client.publish(topic, VALID) == 0
        async with pydanube.connect(broker.stream_url) as client:
            for topic, version in (("/default/old", 1), ("/default/new", 2)):
                [batch] = [each async for each in client.read(topic)]
                assert [each.schema_version for each in batch] == [version]


async def test_a_topic_that_enforces_a_schema_drops_what_no_rule_validates(tmp_path):
    rules = (rule("readings/#", TOPIC, on_invalid="drop"),)
    async with mqtt_broker(tmp_path, rules=rules) as broker:
        await registered(broker)
        async with mqtt_client(broker, "d", version=V311) as client:
            assert await client.publish("readings/1", VALID) == 0
        assert await payloads_of(broker, TOPIC) == []


async def test_a_schema_that_does_not_exist_is_named(tmp_path):
    async with (
        mqtt_broker(tmp_path, rules=readings()) as broker,
        mqtt_client(broker, "d") as client,
    ):
        refused = await client.publish("readings/1", VALID)
        assert refused is Reason.IMPLEMENTATION_SPECIFIC_ERROR
        await registered(broker)
        assert await client.publish("readings/1", VALID) == 0


async def test_an_invalid_will_goes_where_its_rule_says(tmp_path):
    rules = readings(on_invalid="dead_letter", dead_letter_topic=DEAD)
    will = Will(topic="readings/1", payload=INVALID, retain=True)
    async with mqtt_broker(tmp_path, rules=rules) as broker:
        await registered(broker)
        async with mqtt_client(broker, "d", will=will) as client:
            client.abort()
        async with (
            pydanube.connect(broker.stream_url) as client,
            client.consumer(DEAD, subscription="s", start="earliest") as consumer,
        ):
            assert (await consumer.receive(timeout_s=60)).payload == INVALID
        assert await payloads_of(broker, TOPIC) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"schema_version": 1},
        {"on_invalid": "dead_letter"},
        {"dead_letter_topic": DEAD},
        {"on_invalid": "dead_letter", "dead_letter_topic": TOPIC},
        {"on_invalid": "dead_letter", "dead_letter_topic": "/system/audit"},
        {"on_invalid": "dead_letter", "dead_letter_topic": "x"},
        {"schema": "a/subject"},
    ],
)
def test_rules_with_contradictions_are_refused(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"filter": "a/#", "topic": TOPIC, **fields}, MqttRule)


async def test_a_subject_that_is_deleted_is_named_until_there_is_another_one(tmp_path):
    async with mqtt_broker(tmp_path, rules=readings()) as broker:
        await registered(broker)
        async with (
            mqtt_client(broker, "d") as device,
            pydanube.connect(broker.stream_url) as client,
        ):
            assert await device.publish("readings/1", VALID) == 0
            await client.schemas.delete("readings", force=True)
            refused = await device.publish("readings/1", VALID)
            assert refused is Reason.IMPLEMENTATION_SPECIFIC_ERROR
            # The next subject of this name has another id, and other schemas.
            await client.schemas.register("readings", schema("celsius", "humidity"))
            assert await device.publish("readings/1", VALID) == 0
            assert (await device.publish("readings/1", INVALID)) is (
                Reason.PAYLOAD_FORMAT_INVALID
            )
        assert await payloads_of(broker, TOPIC) == [VALID, VALID]


async def test_payloads_match_the_latest_version_also_if_it_is_incompatible(tmp_path):
    async with mqtt_broker(tmp_path, rules=readings(on_invalid="drop")) as broker:
        await registered(broker)
        async with (
            mqtt_client(broker, "d") as device,
            pydanube.connect(broker.stream_url) as client,
        ):
            assert await device.publish("readings/1", VALID) == 0
            await client.schemas.set_compatibility("readings", "none")
            document = {"type": "object", "required": ["kelvin"]}
            other = pydanube.Schema.json_schema(json.dumps(document))
            await client.schemas.register("readings", other)
            for payload in (VALID, b'{"kelvin": 294}'):
                assert await device.publish("readings/1", payload) == 0
        assert await payloads_of(broker, TOPIC) == [VALID, b'{"kelvin": 294}']


async def test_a_will_is_stored_in_the_topic_that_was_created_again(tmp_path):
    will = Will(topic="readings/1", payload=VALID)
    async with mqtt_broker(tmp_path, rules=readings()) as broker:
        await registered(broker)
        async with (
            mqtt_client(broker, "d", will=will) as device,
            pydanube.connect(broker.stream_url) as client,
        ):
            assert await device.publish("readings/1", b'{"celsius": 1}') == 0
            await client.topics.delete(TOPIC, force=True)
            await registered(broker)
            device.abort()
            async with client.consumer(
                TOPIC, subscription="s", start="earliest"
            ) as consumer:
                assert (await consumer.receive(timeout_s=60)).payload == VALID
