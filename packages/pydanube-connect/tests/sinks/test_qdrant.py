"""Tests of the sink for Qdrant, with Qdrant's local mode."""

import uuid
from importlib.util import find_spec

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_connect.sinks.qdrant import NAMESPACE
from support.drivers.connectors import declared, running, write_messages
from support.worlds.current import memory_broker

pytestmark = [
    pytest.mark.slow,
    # Found, not imported, which would take long in every run.
    pytest.mark.skipif(find_spec("qdrant_client") is None, reason="no qdrant-client"),
]

TOPIC = "/default/texts"
EMBED = """
CALLS = []

def embed(texts):
    CALLS.append(len(texts))
    if any("bad" in each for each in texts):
        raise ValueError("no vector for it")
    return [[len(each), 1] for each in texts]

def too_few(texts):
    return []
"""


def declaration(options, fields="dead_letters: /default/dead"):
    return f"""
connectors:
  vectors:
    kind: qdrant-sink
    topic: {TOPIC}
    {fields}
    options: {{path: points, collection: texts, {options}}}
"""


async def write(directory, options, *messages):
    """Write *messages*; the status and the reasons of the dead letters."""
    (directory / "own_embed.py").write_text(EMBED)
    text = declaration(options)
    status, dead = await write_messages(text, TOPIC, *messages, directory=directory)
    return status, [each.attributes["x-failure-reason"] for each in dead]


def points_in(directory):
    """The payload and the vector of each point, by its id."""
    from qdrant_client import QdrantClient  # Importing it takes long.

    client = QdrantClient(path=str(directory / "points"))
    try:
        found, _ = client.scroll("texts", limit=100, with_vectors=True)
    finally:
        client.close()
    return {each.id: (each.payload, each.vector) for each in found}


async def test_a_function_returns_the_vectors_of_messages(tmp_path):
    options = "distance: Euclid, embed: {function: own_embed.py:embed, batch: 2}"
    messages = [(None, b"one"), (None, b'{"text": "two"}'), (None, b"three")]
    _, dead = await write(tmp_path, options, *messages)
    assert dead == []
    assert points_in(tmp_path) == {
        str(uuid.uuid5(NAMESPACE, f"{TOPIC}:0")): ({"text": "one"}, [3, 1]),
        str(uuid.uuid5(NAMESPACE, f"{TOPIC}:1")): ({"text": "two"}, [15, 1]),
        str(uuid.uuid5(NAMESPACE, f"{TOPIC}:2")): ({"text": "three"}, [5, 1]),
    }


async def test_points_are_replaced_and_deleted_by_key(tmp_path):
    key = "d9a3e5c2-6f0e-4a0e-8a60-6a0e6f3f6a11"
    options = "distance: Dot, id: key, vector: v"
    messages = [
        ("1", b'{"v": [1, 2], "x": "old"}'),
        ("b", b'{"v": [1, 2]}'),
        (key, b'{"v": [3, 4]}'),
        ("1", b'{"v": [5, 6], "x": "new"}'),
        ("b", b""),
    ]
    _, dead = await write(tmp_path, options, *messages)
    assert dead == []
    expected = {
        1: ({"v": [5, 6], "x": "new"}, [5, 6]),
        key: ({"v": [3, 4]}, [3, 4]),
    }
    assert points_in(tmp_path) == expected
    # The same messages again, as after a crash.
    await write(tmp_path, options, *messages)
    assert points_in(tmp_path) == expected


async def test_messages_without_a_vector_become_dead_letters(tmp_path):
    messages = [
        (None, b'{"v": [1, 2]}'),
        (None, b"{}"),
        (None, b'{"v": [1, "2"]}'),
        (None, b'{"v": [1, 2, 3]}'),
        (None, b"\xff"),
    ]
    _, dead = await write(tmp_path, "vector: v", *messages)
    assert dead == [
        "there is no field 'v'",
        "the vector is not a list of numbers",
        "the vector has 3 dimensions, and the collection 2",
        "the payload is not UTF-8",
    ]
    assert len(points_in(tmp_path)) == 1


async def test_a_text_for_which_the_function_fails_does_not_stop_others(tmp_path):
    options = "embed: {function: own_embed.py:embed, field: t}"
    messages = [
        (None, b'{"t": "good"}'),
        (None, b'{"t": "bad"}'),
        (None, b'{"t": 1}'),
    ]
    _, dead = await write(tmp_path, options, *messages)
    assert dead == [
        "own_embed.py:embed: ValueError: no vector for it",
        "the field 't' is not a text",
    ]
    assert len(points_in(tmp_path)) == 1


async def test_a_function_that_returns_too_few_vectors_stops_the_connector(tmp_path):
    options = "embed: {function: own_embed.py:too_few}"
    status, _ = await write(tmp_path, options, (None, b"x"))
    assert status.error == "own_embed.py:too_few returns 0 vectors for 1 texts"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("vector: v, url: 'http://h:1'", "set either 'url' or 'path'"),
        ("distance: Dot", "set either 'vector' or 'embed'"),
        ("vector: 'a..b'", "name of a field"),
        ("embed: {function: own_embed.py:embeds}", "did you mean 'embed'"),
        ("embed: {function: own_embed.py:embed, batch: 0}", "must be 1 to 1,000"),
    ],
)
def test_malformed_options_are_refused(tmp_path, options, problem):
    (tmp_path / "own_embed.py").write_text(EMBED)
    with pytest.raises(InvalidDeclaration, match=problem):
        declared(declaration(options), "danube://h:1", tmp_path)


async def test_a_server_that_does_not_answer_is_tried_again():
    text = declaration("vector: v").replace("path: points", "url: 'http://127.0.0.1:9'")
    text = text.replace("topic:", "retries: {backoff: 1ms}\n    topic:", 1)
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b'{"v": [1]}')
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["vectors"].retries > 1)
    assert found["vectors"].error.startswith("no answer: ")
