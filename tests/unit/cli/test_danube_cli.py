"""`danube-cli` sends what the original sends, and prints what the original prints."""

from __future__ import annotations

import grpc
import pytest
from typer.testing import CliRunner

from pydanube.cli.danube_cli import Printer, app, parse_attributes
from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import danube_api_pb2 as pb
from support.danube_server import danube_server

UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "not now")
NO_TOPIC = (grpc.StatusCode.NOT_FOUND, "Unable to find the requested topic")
NO_PRODUCER = (grpc.StatusCode.NOT_FOUND, "The producer does not exist")


@pytest.fixture(scope="module")
def server():
    with danube_server(pb.DESCRIPTOR) as told:
        yield told


@pytest.fixture
def broker(server):
    """One that takes everything, and has no topic yet."""
    server.requests.clear()
    server.metadata.clear()
    server.answers = {
        "TopicLookup": NO_TOPIC,
        "TopicPartitions": pb.TopicPartitionsResponse(),
        "CreateProducer": pb.ProducerResponse(producer_id=4711),
        "SendMessage": pb.MessageResponse(),
    }
    return server


def produce(broker, *arguments):
    command = ["produce", "-s", broker.url, "-t", "/default/orders", *arguments]
    return CliRunner().invoke(app, command)


def lines(result):
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


# Producing.


def test_a_message_is_sent_and_said(broker):
    result = produce(broker, "-m", "hello", "-n", "web", "-a", "a:1, b : x:y")
    assert lines(result) == [
        "✅ Producer 'web' created successfully",
        "📤 Message 1/1 sent successfully (ID: 0)",
        "📊 Summary:",
        "   ✅ Success: 1",
    ]
    [request] = broker.asked("CreateProducer")
    assert (request.producer_name, request.topic_name) == ("web", "/default/orders")
    assert request.dispatch_strategy == pb.NonReliable
    [message] = broker.asked("SendMessage")
    assert message.payload == b"hello"
    assert dict(message.attributes) == {"a": "1", "b": "x:y"}
    assert (message.msg_id.producer_id, message.msg_id.topic_name) == (
        4711,
        "/default/orders",
    )
    assert message.msg_id.broker_addr == broker.url
    assert message.publish_time


def test_a_file_is_one_message(broker, tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(b"\x00\xff\n")
    lines(produce(broker, "-f", str(path), "--reliable"))
    assert [each.payload for each in broker.asked("SendMessage")] == [b"\x00\xff\n"]
    assert broker.asked("CreateProducer")[0].dispatch_strategy == pb.Reliable
    missing = produce(broker, "-f", str(tmp_path / "nothing"))
    assert missing.exit_code == 2
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize("what", [(), ("-m", "x", "-f", "y")])
def test_either_a_message_or_a_file(broker, what):
    result = produce(broker, *what)
    assert result.exit_code == 2
    assert "--message" in result.stderr


def test_partitions_take_turns(broker):
    done = lines(produce(broker, "-m", "x", "-p", "2", "-c", "3", "-i", "100"))
    assert "   ✅ Success: 3" in done
    names = [each.producer_name for each in broker.asked("CreateProducer")]
    assert names == ["test_producer-0", "test_producer-1"]
    topics = [each.msg_id.topic_name for each in broker.asked("SendMessage")]
    assert topics == [f"/default/orders-part-{number}" for number in (0, 1, 0)]


def test_partitions_that_are_there_are_found(broker):
    broker.answers["TopicPartitions"] = pb.TopicPartitionsResponse(
        partitions=["/default/orders-part-0", "/default/orders-part-1"]
    )
    lines(produce(broker, "-m", "x", "-c", "2", "-i", "100"))
    assert {each.msg_id.topic_name for each in broker.asked("SendMessage")} == {
        "/default/orders-part-0",
        "/default/orders-part-1",
    }


@pytest.mark.slow
def test_a_broker_that_is_busy_is_asked_again(broker):
    created = broker.answers["CreateProducer"]
    broker.answers["CreateProducer"] = [UNAVAILABLE, created]
    broker.answers["SendMessage"] = [UNAVAILABLE, pb.MessageResponse()]
    lines(produce(broker, "-m", "x"))
    # The second time, it is created again, because it may be elsewhere now.
    assert len(broker.asked("CreateProducer")) == 3


def test_a_broker_that_has_forgotten_the_producer_is_told_again(broker):
    created = broker.answers["CreateProducer"]
    broker.answers["CreateProducer"] = [created, pb.ProducerResponse(producer_id=8)]
    broker.answers["SendMessage"] = [NO_PRODUCER, pb.MessageResponse()]
    lines(produce(broker, "-m", "x"))
    ids = [each.msg_id.producer_id for each in broker.asked("SendMessage")]
    assert ids == [4711, 8]


def test_the_owner_of_the_topic_is_asked_and_a_proxy_told_who_it_is(broker):
    with danube_server(pb.DESCRIPTOR) as owner:
        owner.answers = dict(broker.answers)
        broker.answers["TopicLookup"] = pb.TopicLookupResponse(
            response_type=pb.TopicLookupResponse.Redirect,
            connect_url=owner.url,
            broker_url="http://owner:6650",
            proxy=True,
        )
        lines(produce(broker, "-m", "x"))
        assert broker.asked("SendMessage") == []
        assert len(owner.asked("SendMessage")) == 1
        headers = {each.get("x-danube-broker-url") for each in owner.metadata}
        assert headers == {"http://owner:6650"}


def test_what_is_not_taken_is_counted(broker):
    broker.answers["SendMessage"] = [
        (grpc.StatusCode.INVALID_ARGUMENT, "too large"),
        pb.MessageResponse(),
    ]
    result = produce(broker, "-m", "x", "-c", "2", "-i", "100")
    assert result.exit_code == 1
    assert "too large" in result.stderr
    assert result.stdout.splitlines()[-2:] == ["   ✅ Success: 1", "   ❌ Failed: 1"]


def test_a_producer_that_is_refused_is_an_error(broker):
    broker.answers["CreateProducer"] = (
        grpc.StatusCode.FAILED_PRECONDITION,
        "Producer requested dispatch strategy does not match topic strategy",
    )
    result = produce(broker, "-m", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not match" in result.stderr


def test_the_interval_has_a_minimum(broker):
    assert produce(broker, "-m", "x", "-i", "99").exit_code == 2


def test_attributes_are_names_and_values():
    assert parse_attributes("") == {}
    assert parse_attributes("a:1,b:2,") == {"a": "1", "b": "2"}
    for text in ("a", ":1", "a:1,b"):
        with pytest.raises(InvalidRequest):
            parse_attributes(text)


# Consuming.


def test_a_topic_that_is_not_there_is_an_error(broker):
    result = CliRunner().invoke(app, ["consume", "-s", broker.url, "-m", "billing"])
    assert result.exit_code == 3
    assert "there is no topic /default/test_topic" in result.stderr


@pytest.mark.slow
def test_messages_are_printed_and_acknowledged_until_nobody_may_subscribe(broker):
    broker.answers["TopicPartitions"] = pb.TopicPartitionsResponse(
        partitions=["/default/orders"]
    )
    # The broker is started again, and then somebody deletes the topic.
    broker.answers["Subscribe"] = [
        pb.ConsumerResponse(consumer_id=7),
        UNAVAILABLE,
        pb.ConsumerResponse(consumer_id=8),
        NO_TOPIC,
    ]
    broker.answers["ReceiveMessages"] = deliver
    broker.answers["Ack"] = pb.AckResponse()
    result = CliRunner().invoke(
        app,
        [
            *("consume", "-s", broker.url, "-t", "/default/orders", "-m", "billing"),
            *("-n", "web", "--sub-type", "fail-over"),
        ],
    )
    assert result.exit_code == 1
    assert "Unable to find the requested topic" in result.stderr
    assert result.stdout.splitlines() == [
        "Received message: number 7",
        "Size: 8 bytes, Total received: 8 bytes",
        "Received message: number 8",
        "Size: 8 bytes, Total received: 16 bytes",
    ]
    request = broker.asked("Subscribe")[0]
    assert (request.consumer_name, request.subscription) == ("web", "billing")
    assert request.subscription_type == pb.ConsumerRequest.Failover
    acked = [
        (each.request_id, each.subscription_name, each.msg_id.topic_name)
        for each in broker.asked("Ack")
    ]
    assert acked == [(number, "billing", "/default/orders") for number in (7, 8)]


def deliver(request, _):
    yield pb.StreamMessage(
        request_id=request.consumer_id,
        msg_id=pb.MsgID(topic_name="/default/orders"),
        payload=b"number %d" % request.consumer_id,
    )


def printed(capsys, *messages):
    printer = Printer()
    for message in messages:
        printer.print(message)
    return capsys.readouterr().out.splitlines()


def message_at(offset, payload=b"hello", **facts):
    msg_id = pb.MsgID(topic_name="/a/b", topic_offset=offset)
    return pb.StreamMessage(msg_id=msg_id, payload=payload, **facts)


def test_a_reliable_message_is_printed_with_its_offset(capsys):
    assert printed(capsys, message_at(0), message_at(3), message_at(2)) == [
        "Received message: hello",
        "Size: 5 bytes, Total received: 5 bytes",
        'Received reliable message: "hello"',
        "Topic offset: 3, Size: 5 bytes, Total received: 10 bytes",
        # It comes again.
        "Received message: hello",
        "Size: 5 bytes, Total received: 15 bytes",
    ]


def test_attributes_are_printed_behind_the_message(capsys):
    message = message_at(0, attributes={"b": "ö", "a": "1"})
    assert printed(capsys, message)[-1] == 'Attributes: {"a": "1", "b": "ö"}'


def test_what_is_no_text_does_nothing_to_a_terminal(capsys):
    [line, _] = printed(capsys, message_at(0, payload=b"\x1b[2J\xff"))
    assert line == "Received message: \\x1b[2J\ufffd"
