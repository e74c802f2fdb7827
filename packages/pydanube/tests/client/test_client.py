import inspect
import pydoc
import re
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

import pydanube
import pydanube.sync
from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube.client.connections.urls import parse_url, split_url
from pydanube.model.arguments import check
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native.in_process import dial_in_process
from pydanube_broker.testing import MemoryBroker
from support.drivers.running import TOPIC, published
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.storages import until
from support.servers.stream_server import stream_server


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("danube://localhost", ("localhost", 6651)),
        ("danube://10.0.0.1:7000", ("10.0.0.1", 7000)),
        ("danube://[::1]:7000", ("::1", 7000)),
    ],
)
def test_url_names_host_and_port(url, expected):
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url", ["localhost:6651", "http://x", "danube://", "danube://x:y"]
)
def test_invalid_url_is_refused(url):
    with pytest.raises(pydanube.InvalidRequest, match=r"danube://127\.0\.0\.1:6651"):
        parse_url(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("danube://a", ["danube://a"]),
        ("danube://a:1,b", ["danube://a:1", "danube://b"]),
        ("danube://a,danube://b", ["danube://a", "danube://b"]),
        ("danube://[::1]:1, b:2,[::1]:1", ["danube://[::1]:1", "danube://b:2"]),
    ],
)
def test_url_may_name_several_brokers(url, expected):
    assert split_url(url) == expected


@pytest.mark.parametrize("url", ["danube://a,", "a,b", "danube://a,http://b"])
def test_invalid_list_of_brokers_is_refused(url):
    with pytest.raises(pydanube.InvalidRequest, match="is not a URL like"):
        split_url(url)


def test_passwords_in_a_list_of_brokers_are_masked():
    assert split_url("danube://ada:geheim@a,b") == ["danube://ada:***@a", "danube://b"]
    with pytest.raises(pydanube.InvalidRequest, match=r"'danube://ada:\*\*\*@a'"):
        split_url("danube://ada:ge,heim@a")


async def test_connection_to_an_unused_port_fails_with_a_clear_error(unused_port):

    with pytest.raises(pydanube.ConnectionLost, match="no broker answers at"):
        async with pydanube.connect(f"danube://127.0.0.1:{unused_port}"):
            pass


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


async def test_topics_are_created_listed_described_and_deleted(client):
    await client.topics.create(TOPIC)
    await client.topics.create("/system/audit", reliable=False)
    assert await client.topics.list() == [TOPIC, "/system/audit"]
    assert await client.topics.list("system") == ["/system/audit"]
    await published(client, b"a", b"b")
    facts = await client.topics.describe(TOPIC)
    assert (facts.base_offset, facts.end_offset, facts.epoch) == (0, 2, 1)
    await client.topics.delete(TOPIC)
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.describe(TOPIC)


async def test_topic_is_created_once(client):
    await client.topics.create(TOPIC)
    await client.topics.create(TOPIC, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists):
        await client.topics.create(TOPIC)
    with pytest.raises(pydanube.AlreadyExists):
        await client.topics.create(TOPIC, reliable=False, exist_ok=True)


async def test_topic_created_again_is_empty(client):
    await published(client, b"old")
    async with client.consumer(TOPIC, subscription="s"):
        pass
    first = await client.topics.describe(TOPIC)
    await client.topics.delete(TOPIC)
    await client.topics.create(TOPIC)
    again = await client.topics.describe(TOPIC)
    assert again.topic_id > first.topic_id
    assert (again.end_offset, again.subscriptions) == (0, ())


async def test_topic_needs_its_namespace(client):
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.topics.create("/nowhere/orders")


async def test_topic_in_use_is_deleted_only_by_force(client):
    async with client.producer(TOPIC):
        with pytest.raises(pydanube.SubscriptionInUse):
            await client.topics.delete(TOPIC)


async def test_subscriptions_are_created_described_and_deleted(client):
    await published(client, b"a", b"b")
    await client.subscriptions.create(TOPIC, "s", type="shared", start="earliest")
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.backlog, facts.type.value) == (0, 2, "shared")
    with pytest.raises(pydanube.AlreadyExists):
        await client.subscriptions.create(TOPIC, "s")
    await client.subscriptions.delete(TOPIC, "s")
    with pytest.raises(pydanube.SubscriptionNotFound):
        await client.subscriptions.describe(TOPIC, "s")


async def test_reported_progress_is_shown_by_the_subscription(client):
    await published(client, *[b"x"] * 10)
    await client.subscriptions.report_progress(TOPIC, "spark", 4)
    await client.subscriptions.report_progress(TOPIC, "spark", 2)
    facts = await client.subscriptions.describe(TOPIC, "spark")
    assert (facts.cursor, facts.backlog) == (4, 6)
    with pytest.raises(pydanube.InvalidRequest, match="beyond"):
        await client.subscriptions.report_progress(TOPIC, "spark", 11)


async def test_invalid_name_is_refused_without_a_request(client):
    with pytest.raises(pydanube.InvalidName, match="/namespace_name/topic_name"):
        await client.topics.create("orders")


async def test_requests_survive_a_broken_connection(broker, client):
    await client.topics.create(TOPIC)
    broker.disconnect_all()
    assert await client.topics.list() == [TOPIC]


async def test_broker_that_chooses_an_unknown_revision_is_refused():
    broker = ScriptedBroker()
    broker.revision = 2
    with pytest.raises(pydanube.ProtocolViolation, match="chose revision 2 of the"):
        async with broker.connect():
            pass


async def test_storage_without_a_remote_store_is_described(client):
    await published(client, b"a")
    found = await client.storage.describe()
    assert (found.remote_url, found.backlog_segments, found.problems) == ("", 0, ())
    for request in (client.storage.upload(), client.storage.evict(TOPIC)):
        with pytest.raises(pydanube.InvalidRequest, match=r"set storage\.remote\.url"):
            await request


# Closing while the broker does not answer.

IMPATIENT = {"close_timeout_s": 0.01}


async def test_close_timeout_of_a_producer_names_the_unacknowledged_messages():
    broker = ScriptedBroker()
    async with broker.connect(**IMPATIENT) as client:
        with pytest.raises(pydanube.TimedOut) as raised:
            async with client.producer(TOPIC) as producer:
                pending = [producer.send_nowait(b"m") for _ in range(3)]
        assert "did not acknowledge 3 messages to /default/orders" in str(raised.value)
        with pytest.raises(pydanube.Closed):
            await pending[0]
    assert broker.connections[0].is_closed.is_set()


async def test_close_timeout_of_a_partitioned_producer_counts_all_partitions():
    broker = ScriptedBroker()
    names = [f"{TOPIC}-part-{number}" for number in range(2)]
    broker.answers[Kind.LIST_PARTITIONS] = lambda _: (
        Kind.PARTITIONS,
        pb.Partitions(topics=names, is_partitioned=True),
    )
    keys = [f"key-{n}" for n in range(20)]
    async with broker.connect(**IMPATIENT) as client:
        with pytest.raises(pydanube.TimedOut, match="acknowledge 20 messages"):
            async with client.producer(TOPIC) as producer:
                _ = [producer.send_nowait(b"m", key=key) for key in keys]


async def test_close_timeout_without_unacknowledged_messages_is_no_error():
    broker = ScriptedBroker()
    async with (
        broker.connect(**IMPATIENT) as client,
        client.producer(TOPIC),
        client.consumer(TOPIC, subscription="s"),
    ):
        pass
    [connection] = broker.connections
    assert connection.is_closed.is_set()
    assert Kind.CLOSE_CONSUMER in connection.received
    # After one of them has timed out, the others do not wait.
    assert Kind.CLOSE_PRODUCER not in connection.received


async def test_close_timeout_of_a_consumer_reports_unconfirmed_acks():
    broker = ScriptedBroker()
    async with broker.connect(**IMPATIENT) as client:
        with pytest.raises(pydanube.TimedOut, match="may deliver these messages again"):
            async with client.consumer(TOPIC, subscription="s") as consumer:
                await consumer.ack(pydanube.MessageId(TOPIC, 0))


async def test_failed_body_does_not_wait_forever():
    broker = ScriptedBroker()
    async with broker.connect(**IMPATIENT) as client:
        with suppress(ZeroDivisionError):
            async with (
                client.producer(TOPIC) as producer,
                client.consumer(TOPIC, subscription="s"),
            ):
                producer.send_nowait(b"m")
                raise ZeroDivisionError
    assert broker.connections[0].is_closed.is_set()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
async def test_invalid_close_timeout_is_refused(seconds):
    with pytest.raises(pydanube.InvalidRequest, match="close_timeout_s"):
        async with ScriptedBroker().connect(close_timeout_s=seconds):
            pass


async def test_a_host_that_does_not_exist_is_named():
    with pytest.raises(pydanube.ConnectionLost, match=r"nowhere\.invalid.* resolved"):
        async with pydanube.connect("danube://nowhere.invalid"):
            pass


async def test_connect_without_a_url_uses_the_environment(monkeypatch, unused_port):
    monkeypatch.setenv("DANUBE_URL", f"danube://127.0.0.1:{unused_port}")
    with pytest.raises(pydanube.ConnectionLost, match=f":{unused_port}"):
        async with pydanube.connect():
            pass


@pytest.mark.parametrize(
    ("greeting", "found"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", "an HTTP port"),
        (b"\0\0\0\x04\0\0\0\0\0" + bytes(20), "a gRPC port"),
    ],
)
async def test_a_port_of_another_protocol_is_recognized(greeting, found):
    async def greet(reader, writer):
        await reader.read(1)
        writer.write(greeting)

    async with stream_server(greet) as port:
        url = f"danube://127.0.0.1:{port}"
        with pytest.raises(pydanube.ProtocolViolation, match=f"{url}: this is {found}"):
            async with pydanube.connect(url):
                pass


async def test_wrong_types_of_arguments_are_explained(client):
    with pytest.raises(pydanube.InvalidRequest, match=r"retention\.age_s must be"):
        await client.topics.create(TOPIC, retention=pydanube.Retention(age_s="7d"))
    with pytest.raises(pydanube.InvalidRequest, match="partitions must be"):
        client.producer(TOPIC, partitions="3")
    with pytest.raises(pydanube.InvalidRequest, match=r"policy\.poison must be"):
        await client.subscriptions.configure(
            TOPIC, "me", failure_policy=pydanube.FailurePolicy(poison="dead_letter")
        )
    with pytest.raises(pydanube.InvalidRequest, match="limits must be"):
        await client.subscriptions.configure(TOPIC, "me", limits=5)
    with pytest.raises(pydanube.InvalidRequest, match="url must be"):
        pydanube.connect(6651)


async def test_wrong_arguments_of_messages_are_explained(client):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="headers is not an option"):
            await producer.send(b"x", headers={"source": "web"})
        with pytest.raises(pydanube.InvalidRequest, match="attributes must be a dict"):
            await producer.send(b"x", attributes=["web"])
        with pytest.raises(pydanube.InvalidRequest, match=r"'source': 5 \(int\)"):
            await producer.send(b"x", attributes={"source": 5})
        with pytest.raises(pydanube.InvalidRequest, match="pass a list of payloads"):
            await producer.send_batch("abc")
        await producer.send(b"x")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        with pytest.raises(pydanube.InvalidRequest, match="max_messages must be"):
            await consumer.receive_batch(max_messages="5")
        message = await consumer.receive(timeout_s=60)
        assert message.offset == 0
        with pytest.raises(pydanube.InvalidRequest, match="delay_s must be"):
            await consumer.nack(message, delay_s="5")
        with pytest.raises(pydanube.InvalidRequest, match="timeout_s must be"):
            await consumer.receive(timeout_s="5")


FACADES = [
    *(pydanube.Topics, pydanube.Subscriptions, pydanube.Namespaces),
    *(pydanube.Schemas, pydanube.Storage, pydanube.Security, pydanube.Cluster),
]


@pytest.mark.parametrize("cls", [pydanube.Client, *FACADES, pydanube.DeadLetters])
def test_every_public_operation_checks_its_arguments(cls):
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or name in {"aclose", "counters", "opened"}:
            continue
        assert hasattr(member, "__wrapped__"), name
        # The type hints can be evaluated.
        check(inspect.unwrap(member), {})


class LateBroker(MemoryBroker):
    """A broker that answers from the third attempt to connect on."""

    attempts = 0

    def connect_waiting(self, wait_s):
        requester = Requester(self._dial, url="danube://late")
        return Client(requester).opened(wait_s)

    async def _dial(self, factory):
        self.attempts += 1
        if self.attempts < 3:
            raise ConnectionRefusedError
        return await dial_in_process(self.server)(factory)


async def test_connecting_waits_for_a_broker_that_is_not_up_yet(broker):
    late = LateBroker(broker.broker, broker.server, broker.clock)
    async with late.connect_waiting(60.0) as client:
        assert await client.topics.list() == []
    assert late.attempts == 3


async def test_connecting_does_not_wait_by_default(broker):
    late = LateBroker(broker.broker, broker.server, broker.clock)
    with pytest.raises(pydanube.ConnectionLost):
        async with late.connect_waiting(0.0):
            pass
    assert late.attempts == 1


async def test_connecting_gives_up_after_the_wait(unused_port):
    url = f"danube://127.0.0.1:{unused_port}"
    with pytest.raises(pydanube.ConnectionLost, match="no broker answers"):
        async with pydanube.connect(url, wait_s=0.01):
            pass


@pytest.mark.parametrize("name", ["wait_s", "retry_s"])
@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_an_invalid_wait_is_refused(name, seconds):
    with pytest.raises(pydanube.InvalidRequest, match=rf"{name} is .* finite"):
        pydanube.connect(**{name: seconds})


class RestartedBroker(MemoryBroker):
    """A broker that refuses all attempts to connect again but every third."""

    attempts = 0

    def connect_for(self, retry_s):
        requester = Requester(self._dial, url="danube://restarted", retry_s=retry_s)
        return Client(requester).opened()

    async def _dial(self, factory):
        self.attempts += 1
        if self.attempts % 3 != 1:
            raise ConnectionRefusedError
        return await dial_in_process(self.server)(factory)


async def test_requests_are_repeated_for_the_time_that_the_caller_allows(broker):
    restarted = RestartedBroker(broker.broker, broker.server, broker.clock)
    async with restarted.connect_for(0.0) as client:
        broker.disconnect_all()
        with pytest.raises(pydanube.ConnectionLost):
            await client.topics.list()
        assert restarted.attempts < 4
    restarted.attempts = 0
    async with restarted.connect_for(60.0) as client:
        broker.disconnect_all()
        assert await client.topics.list() == []
        assert restarted.attempts == 4
        await client.topics.create(TOPIC)
        broker.disconnect_all()
        part = client.staging("query", 0).part("0")
        await part.write(TOPIC, pa.record_batch({"payload": [b"x"]}))
        assert restarted.attempts == 7


async def test_requests_that_must_not_be_repeated_wait_for_a_broker_alone(broker):
    restarted = RestartedBroker(broker.broker, broker.server, broker.clock)
    async with restarted.connect_for(60.0) as client:
        await client.topics.create(TOPIC)
        await client.subscriptions.create(TOPIC, "s")
        connection = await client.requester.connection()
        broker.disconnect_all()
        await until(lambda: connection.is_lost)
        message = pb.DeleteSubscription(subscription="s")
        await client.requester.request_topic(TOPIC, message)
        assert restarted.attempts == 4
        with pytest.raises(pydanube.SubscriptionNotFound):
            await client.subscriptions.describe(TOPIC, "s")


CONSUMER_NAMES = """
ack ack_cumulative aclose extend flush is_active is_connected nack receive
receive_batch release reply seek topics
"""
PRODUCER_NAMES = """
aclose flush has_capacity is_connected pending_count send send_batch send_nowait
wait_for_capacity
"""


@pytest.mark.parametrize(
    ("cls", "names"),
    [(pydanube.Consumer, CONSUMER_NAMES), (pydanube.Producer, PRODUCER_NAMES)],
)
def test_completion_shows_only_what_users_call(cls, names):
    assert [each for each in dir(cls) if not each.startswith("_")] == names.split()


def test_help_shows_the_public_names_only():
    text = pydoc.plain(pydoc.render_doc(pydanube))
    for name in ("Client", "Message", "MessageTooLarge", "Retention"):
        assert f"class {name}(" in text
    assert "connect(" in text
    assert "class Enum" not in text
    assert {"connect", "Consumer", "TopicNotFound"} <= set(dir(pydanube))
    assert not {"re", "import_module", "ERRORS", "Enum"} & set(dir(pydanube))


def lines_of_help(cls):
    return pydoc.plain(pydoc.render_doc(cls)).splitlines()


@pytest.mark.parametrize("cls", [pydanube.Client, pydanube.sync.Client])
def test_help_of_the_client_fits_on_two_screens(cls):
    # The help of Python 3.13 breaks signatures into lines.
    limit = 116 if sys.version_info < (3, 13) else 185
    assert len(lines_of_help(cls)) <= limit


@pytest.mark.parametrize(
    ("method", "keywords"),
    [
        (Client.producer, [pydanube.ProducerKeywords, pydanube.TypedProducerKeywords]),
        (Client.consumer, [pydanube.ConsumerKeywords]),
        (Client.read, [pydanube.ReadKeywords]),
    ],
)
def test_keywords_describe_each_option_of_their_method(method, keywords):
    text = "\n".join(inspect.getdoc(each) for each in keywords)
    options = re.findall(r"^    ([a-z_]+): ", text, re.MULTILINE)
    parameters = inspect.signature(method).parameters
    assert sorted(options) == sorted(parameters.keys() - {"self", "topic"})


async def test_password_in_the_url_is_not_in_errors(unused_port):
    url = f"danube://ada:geheim@127.0.0.1:{unused_port}"
    with pytest.raises(pydanube.ConnectionLost, match=r"//ada:\*\*\*@127") as raised:
        async with pydanube.connect(url):
            pass
    assert "geheim" not in str(raised.value)
    with pytest.raises(pydanube.InvalidRequest, match=r"'http://ada:\*\*\*@there'"):
        pydanube.connect("http://ada:geheim@there")
