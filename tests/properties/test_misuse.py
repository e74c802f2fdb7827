"""A wrong argument is explained in a sentence that names it."""

import inspect
import typing
from datetime import datetime

import pytest

import pydanube
from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    Retention,
)
from support.drivers.running import TOPIC

OPERATIONS = (pydanube.Client, pydanube.Schemas, pydanube.DeadLetters, pydanube.Staging)
FOR_OTHER_MODULES = {
    "closing",
    "commit_transaction",
    "connection",
    "on_error",
    "request_at",
    "request_of",
    "request_topic",
    "send_request",
    "shown",
}


class Nothing:
    """A value that no argument may have."""


def arguments():
    """Yield an object, a method and the name of one of its arguments, for all."""
    for cls in OPERATIONS:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if name.startswith("_") or name in FOR_OTHER_MODULES:
                continue
            for parameter in parameters_of(method):
                if parameter != "self":
                    yield from names_of(method, parameter)


def parameters_of(method):
    # A client imports some classes only when they are used.
    names = {name: getattr(pydanube, name) for name in pydanube.__all__}
    return inspect.signature(method, eval_str=True, locals=names).parameters


def names_of(method, parameter):
    found = parameters_of(method)[parameter]
    names = [parameter]
    if found.kind is inspect.Parameter.VAR_KEYWORD:
        (keywords,) = typing.get_args(found.annotation)
        names = typing.get_type_hints(keywords)
    for name in names:
        yield pytest.param(method, name, id=f"{method.__qualname__}-{name}")


@pytest.mark.parametrize(("method", "name"), list(arguments()))
async def test_every_argument_of_every_operation_is_checked(method, name):
    async def call():
        # The check is the first step of the method, before it uses the object.
        called = method(None, **{name: Nothing()})
        return await called if inspect.isawaitable(called) else called

    with pytest.raises(pydanube.InvalidRequest, match=f"^{name} must be "):
        await call()


async def test_arguments_of_connect_are_checked():
    for name in inspect.signature(pydanube.connect).parameters:
        with pytest.raises(pydanube.InvalidRequest, match=f"^{name} must be "):
            pydanube.connect(**{name: Nothing()})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: p.send(5), "a payload is bytes or str, not int"),
        (lambda p: p.send(None), "a payload is bytes or str, not NoneType"),
        (lambda p: p.send({}), "a payload is bytes or str, not dict"),
        (lambda p: p.send(b"", headers={}), "headers is not an option .*attributes="),
        (lambda p: p.send(b"", attributes=5), "attributes must be a dict or None"),
        (lambda p: p.send(b"", attributes={"a": 5}), "attributes are .* has 'a': 5"),
        (lambda p: p.send(b"", key=5), "a key is bytes or str, not int"),
        (lambda p: p.send(b"", ttl_s="7d"), "ttl_s must be a number of seconds"),
        (lambda p: p.send(b"", deliver_at="noon"), "'noon' is not a time"),
        (lambda p: p.send(b"", deliver_at=datetime(2025, 1, 1)), "has no time zone"),  # noqa: DTZ001
        (lambda p: p.send(b"", id=""), "the id of a message has 0 characters"),
        (lambda p: p.send_batch("abc"), "'abc' is one: pass a list of payloads"),
        (lambda p: p.send_batch(b"abc"), "b'abc' is one: pass a list of payloads"),
        (lambda p: p.send_batch(5), "a list of payloads or Arrow data, not int"),
        (lambda p: p.send_batch([5]), "a payload is bytes or str, not int"),
        (lambda p: p.send_batch([b""], keys=[]), "0 keys for 1 payloads"),
        (lambda p: p.send_batch([b""], keys="k"), "keys is a list with one entry"),
        (lambda p: p.send_batch([b""], headers=[{}]), "headers is not an option"),
    ],
)
async def test_misuse_of_a_producer_is_explained(client, call, said):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.InvalidRequest, match=said):
            await call(producer)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.ack(5), "cannot acknowledge int: pass a message, a batch"),
        (lambda c: c.ack(None), "cannot acknowledge NoneType: pass a message"),
        (lambda c: c.nack([5]), "cannot acknowledge int: pass a message or an id"),
        (lambda c: c.extend("x"), "cannot acknowledge str"),
        (lambda c: c.receive(timeout_s="1s"), "timeout_s must be a number of seconds"),
        (lambda c: c.receive_batch(max_messages="5"), "max_messages must be a whole"),
        (
            lambda c: c.seek("newest"),
            "'earliest', 'latest' or a datetime, not 'newest'",
        ),
        (lambda c: c.seek(1.5), "'earliest', 'latest' or a datetime, not 1.5"),
    ],
)
async def test_misuse_of_a_consumer_is_explained(client, call, said):
    await client.topics.create(TOPIC)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        with pytest.raises(pydanube.InvalidRequest, match=said):
            await call(consumer)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.send(5, b""), "topic must be a str, not 5"),
        (lambda t: t.send_batch(None, [b""]), "topic must be a str, not None"),
        (lambda t: t.send(TOPIC, 5), "a payload is bytes or str, not int"),
        (lambda t: t.send(TOPIC, b"", headers={}), "headers is not an option"),
        (lambda t: t.ack(5), "cannot acknowledge int"),
    ],
)
async def test_misuse_of_a_transaction_is_explained(client, call, said):
    await client.topics.create(TOPIC)
    async with client.transaction("t") as transaction:
        with pytest.raises(pydanube.InvalidRequest, match=said):
            await call(transaction)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda c: c.subscriptions.configure(
                TOPIC, "s", failure_policy=FailurePolicy(poison="drop")
            ),
            "policy.poison must be PoisonPolicy.DEAD_LETTER, .*, not 'drop'",
        ),
        (
            lambda c: c.subscriptions.configure(
                TOPIC, "s", limits=DispatchLimits(unacked_messages_max="5")
            ),
            "limits.unacked_messages_max must be a whole number or None, not '5'",
        ),
        (
            lambda c: c.topics.configure(TOPIC, retention=Retention(age_s="7d")),
            "retention.age_s must be a number of seconds or None, not '7d'",
        ),
    ],
)
async def test_wrong_part_of_a_policy_is_named(client, call, said):
    await client.topics.create(TOPIC)
    with pytest.raises(pydanube.InvalidRequest, match=said):
        await call(client)
