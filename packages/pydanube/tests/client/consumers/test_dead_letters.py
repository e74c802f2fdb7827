"""Dead letters are found, read, replayed with their history, and dropped."""

import pytest

import pydanube
from pydanube.client.operations.subscriptions import Subscriptions
from pydanube.model.dead_letters import (
    ATTEMPT,
    HANDLED_SUBSCRIPTION,
    HISTORY,
    ORIGINAL_OFFSET,
    ORIGINAL_TOPIC,
)
from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy
from support.drivers.running import TOPIC, published, received

DEAD = "/default/dead"
POLICY = FailurePolicy(
    redeliveries_max=0,
    redelivery_delay_s=0.01,
    backoff=Backoff.FIXED,
    poison=PoisonPolicy.DEAD_LETTER,
    dead_letter_topic=DEAD,
)


async def fail(client, *payloads, reason="no", topic=TOPIC, subscription="s"):
    """Publish *payloads*, and make them dead letters."""
    await client.subscriptions.configure(topic, subscription, failure_policy=POLICY)
    await client.topics.create(DEAD, exist_ok=True)
    async with client.consumer(topic, subscription=subscription) as consumer:
        async with client.producer(topic) as producer:
            for payload in payloads:
                await producer.send(payload, key=b"k-" + payload, attributes={"a": "b"})
        await fail_again(client, consumer, len(payloads), reason)


async def fail_again(client, consumer, count, reason="no"):
    end = (await client.topics.describe(DEAD)).end_offset + count
    while (await client.topics.describe(DEAD)).end_offset < end:
        # A message whose rejection was lost comes again.
        batch = await consumer.receive_batch(timeout_s=0.05)
        await consumer.nack(batch, reason=reason)


async def letters_of(client, subscription="s", topic=TOPIC):
    found = client.dead_letters(topic, subscription)
    return [letter async for letter in found.messages()]


async def test_dead_letter_has_the_message_and_its_failure(client):
    await published(client, b"before")
    await fail(client, b"bad", reason="cannot parse")
    [letter] = await letters_of(client)
    assert (letter.topic, letter.offset, letter.attempt) == (TOPIC, 1, 1)
    assert letter.reason == "cannot parse"
    assert letter.history == ()
    assert letter.id == pydanube.MessageId(DEAD, 0)
    message = letter.message
    assert (message.payload, message.key) == (b"bad", "k-bad")
    assert message.attributes["a"] == "b"


async def test_only_letters_of_the_subscription_are_listed(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1", subscription="one")
    await fail(client, b"2", subscription="two")
    await published(client, b"somebody else's", topic=DEAD)
    [letter] = await letters_of(client, "two")
    assert letter.message.payload == b"2"


async def test_forged_attributes_do_not_hide_other_letters(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1")
    [letter] = await letters_of(client)
    forged = letter.message.attributes | {
        HISTORY: "[" * 100_000,
        ORIGINAL_OFFSET: "1" * 10_000,
        ATTEMPT: "1" * 10_000,
    }
    async with client.producer(DEAD) as producer:
        await producer.send(b"forged", attributes=forged)
    [_, found] = await letters_of(client)
    assert (found.offset, found.attempt, found.history) == (None, None, ())


async def test_replayed_letter_is_published_to_its_topic_and_handled(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1", b"2", b"3")
    dead = client.dead_letters(TOPIC, "s")
    chosen = [letter for letter in await letters_of(client) if letter.offset != 1]
    async with client.consumer(TOPIC, subscription="t") as consumer:
        assert await dead.replay(chosen) == 2
        messages = [await consumer.receive(timeout_s=60) for _ in range(2)]
    assert [m.payload for m in messages] == [b"1", b"3"]
    assert messages[0].key == "k-1"
    assert messages[0].attributes["a"] == "b"
    assert messages[0].attributes[ORIGINAL_TOPIC] == TOPIC
    assert [m.attributes[ORIGINAL_OFFSET] for m in messages] == ["0", "2"]
    assert [letter.offset for letter in await letters_of(client)] == [1]


async def test_letter_of_a_second_failure_has_the_whole_history(client):
    await client.topics.create(TOPIC)
    await fail(client, b"bad", reason="first")
    dead = client.dead_letters(TOPIC, "s")
    for reason in ("second", "third"):
        async with client.consumer(TOPIC, subscription="s") as consumer:
            await dead.replay(await letters_of(client))
            await fail_again(client, consumer, 1, reason)
    [letter] = await letters_of(client)
    assert (letter.reason, letter.offset) == ("third", 2)
    assert [each["reason"] for each in letter.history] == ["first", "second"]
    assert [each["offset"] for each in letter.history] == ["0", "1"]
    assert HISTORY in letter.message.attributes


async def test_dropped_letter_is_handled_and_its_message_stays(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1", b"2")
    dead = client.dead_letters(TOPIC, "s")
    first, second = await letters_of(client)
    assert await dead.drop([first]) == 1
    assert [letter.id for letter in await letters_of(client)] == [second.id]
    assert await dead.drop([second]) == 1
    assert await letters_of(client) == []
    assert (await client.topics.describe(DEAD)).end_offset == 2
    assert (
        await client.subscriptions.describe(DEAD, HANDLED_SUBSCRIPTION)
    ).backlog == 0


async def test_letters_of_all_partitions_are_listed_and_replayed_to_their_partition(
    client,
):
    await client.topics.create(TOPIC, partitions=2)
    parts = await client.topics.partitions(TOPIC)
    for name in parts:
        await fail(client, name[-1].encode(), topic=name)
    letters = await letters_of(client)
    assert [letter.topic for letter in letters] == parts
    assert [letter.topic for letter in await letters_of(client, topic=parts[1])] == [
        parts[1]
    ]
    async with client.consumer(TOPIC, subscription="t") as consumer:
        await client.dead_letters(TOPIC, "s").replay(letters)
        got = [await consumer.receive(timeout_s=60) for _ in range(2)]
    assert {m.topic: m.payload for m in got} == {parts[0]: b"0", parts[1]: b"1"}


async def test_replay_does_not_create_a_deleted_topic(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1")
    letters = await letters_of(client)
    await client.topics.delete(TOPIC)
    dead = client.dead_letters(TOPIC, "s", dead_letter_topic=DEAD)
    with pytest.raises(pydanube.TopicNotFound):
        await dead.replay(letters)
    assert await client.topics.list() == [DEAD]
    assert len([letter async for letter in dead.messages()]) == 1


async def test_there_are_no_dead_letters_before_the_first_one(client):
    await client.topics.create(TOPIC)
    policy = pydanube.FailurePolicy(
        poison=pydanube.PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD
    )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    assert await letters_of(client) == []
    mistyped = client.dead_letters(TOPIC, "s", dead_letter_topic="/default/other")
    with pytest.raises(pydanube.TopicNotFound, match="/default/other"):
        await anext(mistyped.messages())


async def test_missing_dead_letter_topic_is_reported(client):
    await client.topics.create(TOPIC)
    with pytest.raises(pydanube.InvalidRequest, match="no dead-letter topic"):
        await letters_of(client)


async def test_letters_can_be_consumed_like_any_messages(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1", b"2")
    async with client.consumer(DEAD, subscription="alarm", start="earliest") as c:
        assert await received(c, 2) == [b"1", b"2"]
    assert len(await letters_of(client)) == 2


async def test_letters_are_handled_although_their_topic_moves_meanwhile(client):
    await client.topics.create(TOPIC)
    await fail(client, b"1")
    letters = await letters_of(client)
    dead = client.dead_letters(TOPIC, "s")
    created = []

    class Moving(Subscriptions):
        async def create(self, *arguments, **options):
            await super().create(*arguments, **options)
            created.append(arguments)
            raise pydanube.NotOwner("the topic has moved, on purpose")

    dead._subscriptions = Moving(dead._client)
    await dead.drop(letters)
    assert len(created) == 1
    assert await letters_of(client) == []


async def test_replayed_message_is_no_duplicate_of_its_first_publication(client):
    await client.topics.create(TOPIC, deduplication=pydanube.Deduplication(age_s=600))
    await client.topics.create(DEAD)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=POLICY)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x", id="a")
        await fail_again(client, consumer, 1)
        await client.dead_letters(TOPIC, "s").replay(await letters_of(client))
        assert await received(consumer, 1) == [b"x"]
