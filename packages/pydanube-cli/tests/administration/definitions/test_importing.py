"""Imports create and change what is missing, and leave the rest alone."""

from collections import Counter
from dataclasses import replace

import pytest

import pydanube
from pydanube.client.operations.connectors import Connectors
from pydanube.client.operations.topics import Topics
from pydanube.security.principals import Principal
from pydanube_cli.administration.definitions.exporting import export_definitions
from pydanube_cli.administration.definitions.importing import (
    Action,
    import_definitions,
)
from pydanube_cli.administration.definitions.pure.document import (
    Definitions,
    SchemaDefinition,
    SubjectDefinition,
    SubscriptionDefinition,
    TopicDefinition,
    encode_definitions,
    parse_definitions,
)
from support.fakes.http_api import State, http_of
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker
from support.worlds.chance import Chance
from support.worlds.cluster import cluster_world
from support.worlds.restarts import restarting_world

CREATED, CHANGED, UNCHANGED, FAILED = Action
SCHEMAS = [
    '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}',
    '{"type": "record", "name": "P", "fields": [{"name": "id", "type": "string"}]}',
]


async def fill(client):
    await client.namespaces.create("shop")
    await client.namespaces.configure(
        "shop", retention=pydanube.Retention(age_s=86_400)
    )
    await client.schemas.register("orders", pydanube.Schema.avro(SCHEMAS[0]))
    await client.schemas.set_compatibility("orders", "none")
    await client.schemas.register("orders", pydanube.Schema.avro(SCHEMAS[1]))
    await client.schemas.set_compatibility("orders", "forward")
    await client.topics.create("/shop/orders", partitions=2, durability="written")
    await client.topics.configure(
        "/shop/orders",
        retention=pydanube.Retention(age_s=3600),
        schema=pydanube.TopicSchema(subject="orders"),
    )
    await client.topics.create("/shop/dead")
    await client.topics.create("/shop/live", reliable=False)
    policy = pydanube.FailurePolicy(
        poison=pydanube.PoisonPolicy.DEAD_LETTER, dead_letter_topic="/shop/dead"
    )
    await client.subscriptions.create("/shop/orders", "billing", type="shared")
    await client.subscriptions.configure(
        "/shop/orders", "billing", failure_policy=policy
    )
    await client.subscriptions.create("/shop/dead", "dead-letters", type="shared")
    await client.security.set_role("packer", ["consume"], ["/shop/*"])
    await client.security.add_binding("user:ada", ["packer"], ["/shop/*"])
    numbers = '{"kind": "generator-source", "topic": "/shop/orders"}'
    await client.connectors.set("numbers", "/shop/orders", numbers)
    await client.connectors.pause("numbers")


async def test_imported_definition_is_paused_before_a_worker_can_run_it(monkeypatch):
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await fill(client)
        wanted = await export_definitions(client)
        await client.connectors.delete("numbers")

        async def refuse(*_):
            raise AssertionError

        # It is paused in the request that stores it.
        monkeypatch.setattr(Connectors, "pause", refuse)
        await import_definitions(client, wanted)
        assert (await client.connectors.describe("numbers")).is_paused


async def test_partitions_are_described_once_for_all_subscriptions(monkeypatch):
    topic, names = "/default/parted", [f"s{number}" for number in range(40)]
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await client.topics.create(topic, partitions=3)
        for name in names:
            await client.subscriptions.create(topic, name)
        wanted = await export_definitions(client)
        described, describe = [], Topics.describe

        async def describe_counted(topics, name):
            described.append(name)
            return await describe(topics, name)

        monkeypatch.setattr(Topics, "describe", describe_counted)
        done = await import_definitions(client, wanted)
        assert counts(done)["subscription", UNCHANGED] == len(names)
        # The topic itself is described by its first partition.
        assert len(described) == 4


def counts(outcomes):
    return Counter((each.kind, each.action) for each in outcomes)


async def test_import_makes_the_same_elsewhere_and_can_be_repeated():
    async with guarded_broker() as old, client_of(old, ROOT) as client:
        await fill(client)
        wanted = await export_definitions(client)
    assert "dead-letters" not in wanted.topics["/shop/dead"].subscriptions
    async with guarded_broker() as new, client_of(new, ROOT) as client:
        planned = await import_definitions(client, wanted, dry_run=True)
        assert await client.topics.list() == []
        done = await import_definitions(client, wanted)
        assert counts(planned) == counts(done)
        assert counts(done) == {
            ("namespace", CREATED): 1,
            ("namespace", UNCHANGED): 1,
            ("schema", CREATED): 1,
            ("topic", CREATED): 3,
            ("subscription", CREATED): 1,
            ("role", CREATED): 1,
            ("binding", CREATED): 1,
            ("connector", CREATED): 1,
        }
        found = await export_definitions(client)
        assert encode_definitions(found) == encode_definitions(wanted)
        again = await import_definitions(client, wanted)
        assert {each.action for each in again} == {UNCHANGED}


async def test_references_of_schemas_are_restored_with_the_numbers_of_the_target():
    protobuf = pydanube.SchemaType.PROTOBUF
    city = 'syntax = "proto3"; message City { string name = 1; }'
    newer = city.replace("}", "string code = 2; }")
    shipment = (
        '//danube:file {"name": "city.proto", "subject": "city", "version": 2}\n'
        + newer
        + '\n//danube:main\nsyntax = "proto3"; import "city.proto"; '
        "message Shipment { City to = 1; }"
    )
    to = pydanube.ReferencedVersion(name="city.proto", subject="city", version=2)
    async with guarded_broker() as old, client_of(old, ROOT) as client:
        await client.schemas.register("city", pydanube.Schema(protobuf, city))
        await client.schemas.register("city", pydanube.Schema(protobuf, newer))
        for name in ("a-shipment", "shipment"):
            new = pydanube.Schema(protobuf, shipment)
            await client.schemas.register(name, new, references=[to])
        # The number of the only version is 2.
        await client.schemas.delete("city", 1)
        wanted = await export_definitions(client)
    assert [each.version for each in wanted.subjects["city"].versions] == [2]
    wanted = parse_definitions(encode_definitions(wanted))
    async with guarded_broker() as new, client_of(new, ROOT) as client:
        planned = await import_definitions(client, wanted, dry_run=True)
        assert await client.schemas.subjects() == []
        done = await import_definitions(client, wanted)
        assert planned == done
        assert counts(done)["references", CREATED] == 2
        found = await client.schemas.latest("shipment")
        assert found.references == (replace(to, version=1),)
        with pytest.raises(pydanube.SchemaInUse):
            await client.schemas.delete("city")
        identity = ChosenIdentity()
        identity.principal = ROOT
        async with http_of(State(new.broker), authenticator=identity) as http:
            shown = (await http.get("/subjects/shipment/versions/1")).json()
            assert shown["references"] == [
                {"name": "city.proto", "subject": "city", "version": 1}
            ]
            found = await http.get("/subjects/city/versions/1/referencedby")
            assert len(found.json()) == 2
        again = await import_definitions(client, wanted)
        assert {each.action for each in again} == {UNCHANGED}
        del wanted.subjects["city"]
        failed = [
            each.detail
            for each in await import_definitions(client, wanted)
            if each.action is FAILED
        ]
        assert failed == ["there is no version 2 of city in the file"] * 2


async def test_what_differs_is_changed_and_named():
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await fill(client)
        wanted = await export_definitions(client)
        await client.topics.configure("/shop/orders", retention=None)
        await client.namespaces.configure("shop", retention=pydanube.Retention())
        await client.schemas.set_compatibility("orders", "full")
        await client.subscriptions.configure("/shop/orders", "billing", is_paused=True)
        await client.security.set_role("packer", ["produce"], ["/shop/*"])
        wanted.topics["/shop/orders"].partitions = 3
        done = await import_definitions(client, wanted)
        changed = {each.name: each.detail for each in done if each.action is CHANGED}
        assert changed == {
            "shop": "retention.age: none → 1d",
            "orders": "compatibility: full → forward",
            "/shop/orders": "1 more partitions, retention: inherit → age=1h, "
            "size=none, acknowledged=no",
            "billing of /shop/orders": "in 1 more partitions, paused: yes → no",
            "packer": "consume",
        }
        assert len(await client.topics.partitions("/shop/orders")) == 3


async def test_import_completes_what_an_earlier_one_did_in_some_partitions():
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await fill(client)
        wanted = await export_definitions(client)
        # The first partition is as it should be.
        last = (await client.topics.partitions("/shop/orders"))[1]
        await client.subscriptions.delete(last, "billing")
        await client.topics.add_partitions("/shop/orders", 3)
        wanted.topics["/shop/orders"].partitions = 3
        [done] = await changed_by(client, wanted)
        assert (done.action, done.detail) == (CHANGED, "in 2 more partitions")
        await client.subscriptions.configure(last, "billing", is_paused=True)
        [done] = await changed_by(client, wanted)
        assert (done.action, done.detail) == (CHANGED, "paused: yes → no")
        assert await changed_by(client, wanted) == []
        for part in await client.topics.partitions("/shop/orders"):
            settings = (await client.subscriptions.describe(part, "billing")).settings
            assert settings.failure_policy is not None
            assert not settings.is_paused


async def changed_by(client, wanted):
    done = await import_definitions(client, wanted)
    return [each for each in done if each.action is not UNCHANGED]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (TopicDefinition(partitions=1), "it has 2 partitions, not 1"),
        (TopicDefinition(), "with partitions is yes, not no"),
        (TopicDefinition(partitions=2, reliable=False), "reliable is yes, not no"),
        (TopicDefinition(partitions=2), "durability is written, not durable"),
        (TopicDefinition(partitions=2, settings={"x": 1}), "no setting x"),
    ],
)
async def test_what_cannot_change_fails_and_the_rest_is_done(wanted, text):
    if "x" in wanted.settings:
        wanted.durability = "written"
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await fill(client)
        topics = {"/shop/orders": wanted, "/shop/new": TopicDefinition()}
        failed, created = await import_definitions(client, Definitions(topics=topics))
        assert failed.action is FAILED
        assert text in failed.detail
        assert created.action is CREATED


async def test_subscriptions_of_failed_topics_and_other_types_fail():
    shared = {"billing": SubscriptionDefinition(type="exclusive")}
    topics = {
        "/none/orders": TopicDefinition(subscriptions=shared),
        "/shop/orders": TopicDefinition(
            partitions=2, durability="written", subscriptions=shared
        ),
    }
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await fill(client)
        found = await import_definitions(client, Definitions(topics=topics))
        details = {each.name: each.detail for each in found if each.action is FAILED}
    assert details.keys() == {
        "/none/orders",
        "billing of /none/orders",
        "billing of /shop/orders",
    }
    assert details["billing of /shop/orders"] == "it is shared, and not exclusive"


async def test_what_the_client_may_not_do_fails():
    alice = Principal("alice", "token")
    async with guarded_broker() as broker, client_of(broker, ROOT) as root:
        await fill(root)
        wanted = await export_definitions(root)
        await root.topics.delete("/shop/dead", force=True)
        async with client_of(broker, alice) as client:
            found = await import_definitions(client, wanted)
            seen = await export_definitions(client)
        assert counts(found)["topic", FAILED] == 3
        assert seen == Definitions()
        assert "/shop/dead" not in await root.topics.list()


@pytest.mark.parametrize("world", [cluster_world, restarting_world])
async def test_import_goes_on_while_brokers_restart_and_topics_move(world):
    topics = {
        f"/default/t{number}": TopicDefinition(
            partitions=2,
            subscriptions={"s": SubscriptionDefinition(type="shared", settings={})},
        )
        for number in range(20)
    }
    subjects = {
        "orders": SubjectDefinition(
            compatibility="forward",
            versions=[
                SchemaDefinition(type="avro", definition=each) for each in SCHEMAS
            ],
        )
    }
    wanted = Definitions(topics=topics, subjects=subjects)
    async with world(Chance("1")) as broker, broker.connect() as client:
        done = await import_definitions(client, wanted)
        again = await import_definitions(client, wanted)
    assert {each.action for each in done} <= {CREATED, CHANGED}
    assert {each.action for each in again} == {UNCHANGED}
