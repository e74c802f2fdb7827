"""
What holds for every kind of connector: options are checked, and servers may be away.

The kinds that Spark writes with are pipelines, whose tests are elsewhere.  The messages
that all kinds must survive are in ``tests/e2e/test_awkward_messages_of_*.py``.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from pydanube.model.extras import EXTRAS
from pydanube_broker.testing import memory_broker
from pydanube_connect.connector import Sink, Source
from pydanube_connect.kinds import KINDS, find_kind
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.servers.ports import free_port

TOPIC = "/default/t"
PASSWORD = "sesame-street"
MAIL = {"host": "h", "sender": "a@b", "to": ["c@d"], "subject": "s"}
POSTGRES = {"url": "postgresql://h/d", "tables": {"public.orders": None}}
AWS = {
    "region": "eu-central-1",
    "access_key_id": "k",
    "secret_access_key": PASSWORD,
}
SQL = {"url": "sqlite://", "table": "t", "column": "id"}

OPTIONS = {
    "chat-sink": (
        {"url": "https://h/x", "text": "{value.a}", "body": {"a": ["{key}"]}},
        [
            {"url": "ftp://x"},
            {"text": "{what}"},
            {"body": {"a": [{"b": "{what}"}]}},
            {"timeout": "x"},
        ],
    ),
    "elasticsearch-sink": (
        {"url": "http://h:1", "index": "i"},
        [{"url": "h"}, {"index": ""}],
    ),
    "files-sink": (
        {"url": "fs:///x", "columns": {"id": "integer"}},
        [
            {"url": "/x"},
            {"columns": {"a..b": {"field": "a..b"}}},
            {"compression": "snappy"},
            {"partition": "../x"},
            {"partition": "{time:%Y/%m}"},
        ],
    ),
    "files-source": (
        {"directory": ".", "patterns": ["*"]},
        [
            {"directory": "none"},
            {"patterns": []},
            {"patterns": ["../*"]},
            {"poll": "soon"},
            {"line_bytes_max": "much"},
        ],
    ),
    "generator-source": ({"rate": 0.5}, [{"count": -1}, {"rate": 0.0}]),
    "http-sink": (
        {"url": "http://h"},
        [{"url": "ftp://x"}, {"concurrency": 0}, {"timeout": "x"}],
    ),
    "http-source": (
        {"url": "http://h"},
        [
            {"url": "ftp://x"},
            {"items": "a["},
            {"parameter": "p"},
            {"poll": "soon"},
            {"answer_bytes_max": "much"},
        ],
    ),
    "kafka-sink": (
        {"topic": "from-{topic}"},
        [{"topic": "a b"}, {"timeout": "soon"}, {"password": "p"}],
    ),
    "kafka-source": (
        {"topics": {"t": "/a/{topic}"}},
        [
            {"topics": {"^(": "no topic"}},
            {"servers": " "},
            {"ca_file": "ca.pem"},
            {"key_file": "k"},
        ],
    ),
    "kinesis-sink": (AWS | {"stream": "s"}, [{"stream": "a b"}, {"endpoint": "h"}]),
    "kinesis-source": (
        AWS | {"stream": "s", "start": "latest"},
        [{"stream": ""}, {"poll": "soon"}, {"secret_access_key": None}],
    ),
    "mail-sink": (
        MAIL,
        [
            {"to": []},
            {"to": ["someone"]},
            {"sender": "a@b\nBcc: c@d"},
            {"subject": "{what}"},
            {"per_minute": 0},
        ],
    ),
    "mqtt-sink": ({"topic": "t"}, [{"topic": ""}, {"port": 0}]),
    "mqtt-source": (
        {"client_id": "c", "filters": {"a/#": None}},
        [{"filters": {}}, {"filters": {"a#": None}}, {"port": 0}],
    ),
    "mysql-source": (
        {"tables": {"shop.orders": None}},
        [
            {"tables": {}},
            {"tables": {"orders": None}},
            {"tables": {"*": "no name"}},
            {"port": 0},
            {"server_id": 2**32},
            {"ca_file": "/none"},
        ],
    ),
    "nats-sink": (
        {"subject": "a.{key}"},
        [{"subject": ""}, {"subject": "a..b"}, {"subject": "a.*"}, {"servers": ""}],
    ),
    "nats-source": (
        {"stream": "ORDERS"},
        [{"stream": "a.b"}, {"servers": " "}, {"key_file": "/none"}],
    ),
    "objects-source": (
        {"url": "s3://bucket/prefix"},
        [
            {"url": "bucket"},
            {"poll": "soon"},
            {"message_bytes_max": "big"},
            {"delimiter": ";;"},
        ],
    ),
    "otlp-source": (
        {"api_keys": ["k"]},
        [
            {"listen": "4318"},
            {"path": "v1"},
            {"body_bytes_max": "much"},
            {"decoded_bytes_max": "much"},
            {"api_keys": [""]},
            {"key_file": "/none"},
        ],
    ),
    "postgres-sink": ({"url": POSTGRES["url"], "table": "t"}, [{"url": " "}]),
    "postgres-source": (
        POSTGRES,
        [
            {"url": " "},
            {"tables": {}},
            {"slot": "Upper"},
            {"slot": "s" * 64},
            {"publication": ""},
        ],
    ),
    "qdrant-sink": (
        {"path": "p", "collection": "c", "vector": "v"},
        [{"vector": "a..b"}, {"collection": ""}],
    ),
    "rabbitmq-sink": ({"routing_key": "a"}, [{"routing_key": ""}, {"url": "http://a"}]),
    "rabbitmq-source": (
        {"queues": {"a": None}},
        [
            {"queues": {}},
            {"queues": {"a": "no topic"}},
            {"prefetch": 0},
            {"url": "http://a"},
        ],
    ),
    "redis-sink": ({"stream": "s"}, [{"stream": ""}, {"url": "http://a"}]),
    "redis-source": (
        {"streams": {"s": None}},
        [{"streams": {}}, {"url": "http://a"}],
    ),
    "sns-sink": (
        AWS | {"topic": "arn:aws:sns:eu-central-1:123456789012:a.fifo"},
        [{"topic": "alerts"}, {"endpoint": "ftp://h"}],
    ),
    "sql-source": (
        SQL,
        [{"url": " "}, {"table": "a.b.c"}, {"column": ""}, {"poll": "soon"}],
    ),
    "sqs-sink": (
        AWS | {"queue": "a-b_c.fifo"},
        [{"queue": ""}, {"queue": "a/b"}, {"queue": "a b"}],
    ),
    "sqs-source": (
        AWS | {"queue": "https://sqs.eu-central-1.amazonaws.com/123456789012/q"},
        [{"queue": "https://h/"}, {"receivers": 0}, {"endpoint": "h"}],
    ),
    "webhook-source": (
        {"path": "/in", "api_keys": ["k"], "listen": "127.0.0.1:8090"},
        [
            {"listen": "8090"},
            {"path": "in"},
            {"body_bytes_max": "much"},
            {"rate": 0.0},
            {"timeout": "soon"},
            {"api_keys": [""]},
        ],
    ),
}
"""Valid options of each kind, and changes that are each a problem of their option."""


def problems(kind, options, directory):
    found = find_kind(kind, directory)
    return found.problems(msgspec.convert(options, found.Options))


def test_every_kind_keeps_the_contract(tmp_path):
    own = {
        each for each in KINDS if issubclass(find_kind(each, tmp_path), Source | Sink)
    }
    assert OPTIONS.keys() == own


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, {}) for kind in OPTIONS),
        ("objects-source", {"message_bytes_max": "1"}),
        ("rabbitmq-sink", {"routing_key": "", "exchange": "fanout"}),
    ],
    ids=str,
)
def test_valid_options_have_no_problem(kind, change, tmp_path):
    assert problems(kind, OPTIONS[kind][0] | change, tmp_path) == {}


@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, change) for kind, (_, changes) in OPTIONS.items() for change in changes],
    ids=str,
)
def test_a_malformed_option_is_a_problem_of_this_option(kind, change, tmp_path):
    found = problems(kind, OPTIONS[kind][0] | change, tmp_path)
    assert found.keys() == change.keys()
    assert all(found.values())


SCHEMES = {
    **dict.fromkeys(("chat-sink", "http-sink", "http-source"), "http"),
    **dict.fromkeys(("postgres-sink", "postgres-source", "sql-source"), "postgresql"),
    **dict.fromkeys(("rabbitmq-sink", "rabbitmq-source"), "amqp"),
    **dict.fromkeys(("redis-sink", "redis-source"), "redis"),
}
SERVERS = {"kafka-sink", "kafka-source", "nats-sink", "nats-source"}
ENDPOINTS = {"kinesis-sink", "kinesis-source", "sns-sink", "sqs-sink", "sqs-source"}
PORTS = {"mail-sink", "mqtt-sink", "mqtt-source", "mysql-source"}


def address(kind, port):
    """The options of *kind* for a server at *port*, with a password."""
    if kind in SCHEMES:
        return {"url": f"{SCHEMES[kind]}://u:{PASSWORD}@127.0.0.1:{port}/0"}
    if kind in ENDPOINTS:
        return {"endpoint": f"http://127.0.0.1:{port}"}
    server = {"port": port, "host": "127.0.0.1"}
    if kind in SERVERS:
        server = {"servers": f"127.0.0.1:{port}"}
    waits = {"timeout": "1s"} if kind == "kafka-sink" else {}
    return {**server, **waits, "username": "u", "password": PASSWORD}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SCHEMES, *sorted(SERVERS | PORTS | ENDPOINTS)])
async def test_a_server_that_does_not_answer_is_tried_again(kind, tmp_path):
    for package in EXTRAS[find_kind(kind, tmp_path).extra or "connect"]:
        pytest.importorskip(package)
    options = OPTIONS[kind][0] | address(kind, free_port())
    text = f"""
connectors:
  c:
    kind: {kind}
    topic: {TOPIC}
    retries: {{backoff: 1ms, backoff_max: 1ms, count: 1000}}
    options: {json.dumps(options)}
"""
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b'{"id": 1}')
        async with running(declared(text, broker.url, tmp_path)) as until:
            found = await until(
                lambda found: found["c"].retries or found["c"].state.is_over
            )
            assert not found["c"].state.is_over, found["c"].error
            assert found["c"].error
            assert PASSWORD not in found["c"].error
            assert found["c"].state is not State.RUNNING
