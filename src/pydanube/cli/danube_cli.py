"""
`danube-cli`: the commands of the original's client tool, for scripts that have them.

It speaks the client interface of Danube over gRPC, one message a call, and prints what
the original prints.  `danube produce` and `danube consume` are the ones to learn; they
are faster and know more.
"""

from __future__ import annotations

import asyncio
import json
import sys
from enum import Enum
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import grpc_client, interruption, scripts
from pydanube.cli.answers import print_line, printable, say
from pydanube.cli.danube_cli_schemas import schema
from pydanube.cli.grpc_calls import CallFailed
from pydanube.cli.grpc_client import Producer, choose_schema, open_brokers, topics_of
from pydanube.cli.options import examples
from pydanube.cli.payload_texts import PayloadTexts
from pydanube.cli.schema_calls import TYPES, definition_of
from pydanube.cli.scripts import Reported
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2 as registry_pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.cli.grpc_client import Brokers
    from pydanube.cli.interruption import Interruption

INTERVAL_MS_MIN = 100

app = typer.Typer(
    name="danube-cli",
    cls=Reported,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "danube-cli produce -s http://127.0.0.1:6650 -t /default/orders -m hello",
        "danube-cli consume -s http://127.0.0.1:6650 -t /default/orders -m billing",
    ),
)

app.add_typer(schema, name="schema")


@app.callback()
def danube_cli() -> None:
    """
    Publish and print messages as Danube's own tool does, with its commands.

    "danube produce" and "danube consume" are faster, and know more.
    """


ServiceAddress = Annotated[
    str,
    typer.Option(
        "--service-addr",
        "-s",
        metavar="URL",
        help="The broker's gRPC interface, such as http://127.0.0.1:6650.",
    ),
]

TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="/NAMESPACE/TOPIC.")
]


@app.command()
def produce(
    *,
    service_addr: ServiceAddress,
    producer_name: Annotated[
        str,
        typer.Option("--producer-name", "-n", metavar="NAME", help="Who publishes."),
    ] = "test_producer",
    topic: TopicOption = "/default/test_topic",
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="What is published."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="The same from a file."),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option(
            "--attributes",
            "-a",
            metavar="NAME:VALUE,…",
            help="What else is said about the message.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            metavar="N",
            help="Spread over so many partitions, which are created if need be.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, metavar="N", help="How many times.")
    ] = 1,
    interval: Annotated[
        int,
        typer.Option(
            "--interval",
            "-i",
            min=INTERVAL_MS_MIN,
            metavar="MS",
            help="Milliseconds between two messages.",
        ),
    ] = 500,
    reliable: Annotated[
        bool,
        typer.Option("--reliable", help="The topic is on disk, not in memory only."),
    ] = False,
    schema_subject: Annotated[
        str | None,
        typer.Option(
            metavar="SUBJECT",
            help="The schema of the message: the latest version of this subject.",
        ),
    ] = None,
    schema_version: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="This version of the subject instead."),
    ] = None,
    schema_min_version: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The latest version, if it is not older than N."
        ),
    ] = None,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A schema that is registered first, with --schema-type.",
        ),
    ] = None,
    schema_type: Annotated[
        str | None, typer.Option(metavar=TYPES, help="Its language.")
    ] = None,
) -> None:
    """Publish a message, once or several times."""
    reference = schema_reference(schema_subject, schema_version, schema_min_version)
    if (schema_file is None) != (schema_type is None):
        raise InvalidRequest("--schema-file and --schema-type go together")
    if schema_file is not None and (schema_version or schema_min_version):
        raise InvalidRequest("a schema that is registered now has no version yet")
    if (message is None) == (file is None):
        raise InvalidRequest("either --message or --file says what to publish")
    payload = (message or "").encode() if file is None else _read(file)
    name = str(TopicName.parse(topic))
    given = parse_attributes(attributes or "")

    async def work(_: Interruption) -> None:
        async with open_brokers(service_addr) as brokers:
            if schema_file is not None and schema_type is not None:
                reference.subject = schema_subject or name[1:].replace("/", "-")
                await _register(brokers, reference.subject, schema_file, schema_type)
            schema = None
            if reference.subject:
                schema = await choose_schema(brokers, reference)
            topics = await _targets(brokers, name, partitions)
            producers = [
                Producer(
                    brokers,
                    each,
                    f"{producer_name}-{number}" if len(topics) > 1 else producer_name,
                    is_reliable=reliable,
                    schema=schema,
                )
                for number, each in enumerate(topics)
            ]
            for producer in producers:
                await producer.create()
            print_line(f"✅ Producer '{producer_name}' created successfully")
            await _publish(producers, payload, given, count, interval / 1000)

    interruption.run(work)


async def _register(
    brokers: Brokers, subject: str, file: Path, schema_type: str
) -> None:
    print_line(f"Auto-registering schema for subject '{subject}'")
    request = registry_pb.RegisterSchemaRequest(
        subject=subject,
        schema_type=schema_type,
        schema_definition=definition_of(file),
        created_by="danube-cli",
    )
    answer = await brokers.registry_call("RegisterSchema", request)
    print_line(f"Schema registered with ID: {answer.schema_id}")


async def _targets(brokers: Brokers, topic: str, partitions: int | None) -> list[str]:
    """Where to publish: as many partitions as are wanted or are there, or the topic."""
    if partitions is not None:
        base = TopicName.parse(topic)
        return [str(base.partition(number)) for number in range(partitions)]
    return await brokers.partitions(topic) or [topic]


async def _publish(
    producers: list[Producer],
    payload: bytes,
    attributes: Mapping[str, str],
    count: int,
    interval_s: float,
) -> None:
    sent = 0
    for number, producer in zip(range(1, count + 1), cycle(producers), strict=False):
        if number > 1:
            await asyncio.sleep(interval_s)
        try:
            request_id = await producer.send(payload, attributes)
        except CallFailed as error:
            say(f"❌ Message {number}/{count} failed: {error}")
            continue
        sent += 1
        print_line(f"📤 Message {number}/{count} sent successfully (ID: {request_id})")
    print_line("📊 Summary:")
    print_line(f"   ✅ Success: {sent}")
    if sent < count:
        print_line(f"   ❌ Failed: {count - sent}")
        raise typer.Exit(1)


# Consuming.


class SubscriptionType(Enum):
    """The types under the names that the original's tool gives them."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAIL_OVER = "fail-over"
    KEY_SHARED = "key-shared"


_TYPES = {
    SubscriptionType.EXCLUSIVE: pb.ConsumerRequest.Exclusive,
    SubscriptionType.SHARED: pb.ConsumerRequest.Shared,
    SubscriptionType.FAIL_OVER: pb.ConsumerRequest.Failover,
    SubscriptionType.KEY_SHARED: pb.ConsumerRequest.KeyShared,
}


@app.command()
def consume(
    *,
    service_addr: ServiceAddress,
    topic: TopicOption = "/default/test_topic",
    consumer_name: Annotated[
        str,
        typer.Option(
            "--consumer", "--consumer-name", "-n", metavar="NAME", help="Who consumes."
        ),
    ] = "consumer_pubsub",
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription",
            "-m",
            metavar="NAME",
            help="What remembers which messages are done; created if need be.",
        ),
    ],
    sub_type: Annotated[
        SubscriptionType,
        typer.Option(
            metavar="exclusive|shared|fail-over|key-shared",
            help="How the consumers of a new subscription share it.",
        ),
    ] = SubscriptionType.SHARED,
) -> None:
    """Print messages as they come, and acknowledge what was printed."""
    name = str(TopicName.parse(topic))
    printer = Printer()

    async def work(_: Interruption) -> None:
        async with open_brokers(service_addr) as brokers, asyncio.TaskGroup() as tasks:
            texts = PayloadTexts(partial(brokers.registry_call, "GetSchema"))

            async def show(message: pb.StreamMessage) -> None:
                text = await texts.of(message)
                printer.print(message, text)

            for each in await topics_of(brokers, name):
                request = pb.ConsumerRequest(
                    topic_name=each,
                    consumer_name=consumer_name,
                    subscription=subscription,
                    subscription_type=_TYPES[sub_type],
                )
                tasks.create_task(grpc_client.consume(brokers, request, show))

    try:
        interruption.run(work)
    except ExceptionGroup as group:
        # Of several partitions, each may have failed: the first one says why.
        raise group.exceptions[0] from None


class Printer:
    """Prints messages as the original does, and counts what it printed."""

    def __init__(self) -> None:
        self._byte_count = 0
        self._last_offsets: dict[str, int] = {}

    def print(self, message: pb.StreamMessage, decoded: str | None = None) -> None:
        """
        Print *message*, and what its payload means if that is known.

        That a topic is reliable shows only in its offsets, so the message at offset 0
        looks like one of a topic that is not.
        """
        size = len(message.payload)
        self._byte_count += size
        text = decoded
        if text is None:
            text = printable(message.payload.decode(errors="replace"))
        figures = f"Size: {size} bytes, Total received: {self._byte_count} bytes"
        topic, offset = message.msg_id.topic_name, message.msg_id.topic_offset
        if offset > self._last_offsets.get(topic, 0):
            self._last_offsets[topic] = offset
            print_line(f'Received reliable message: "{text}"')
            print_line(f"Topic offset: {offset}, {figures}")
        else:
            print_line(f"Received message: {text}")
            print_line(figures)
        if message.attributes:
            attributes = dict(sorted(message.attributes.items()))
            print_line(f"Attributes: {json.dumps(attributes, ensure_ascii=False)}")


def schema_reference(
    subject: str | None, version: int | None, version_min: int | None
) -> pb.SchemaReference:
    """
    What a producer says about its schema; without a subject, nothing.

    Raises:
        InvalidRequest: There are two versions, or one of no subject.
    """
    if version is not None and version_min is not None:
        raise InvalidRequest("either --schema-version or --schema-min-version")
    if subject is None:
        if version is not None or version_min is not None:
            raise InvalidRequest("a schema version needs --schema-subject")
        return pb.SchemaReference(use_latest=True)
    if version is not None:
        return pb.SchemaReference(subject=subject, pinned_version=version)
    if version_min is not None:
        return pb.SchemaReference(subject=subject, min_version=version_min)
    return pb.SchemaReference(subject=subject, use_latest=True)


def parse_attributes(text: str) -> dict[str, str]:
    """
    Names and values from ``name:value,name:value``.

    Raises:
        InvalidRequest: A part has no colon, or no name before it.
    """
    pairs = [each.partition(":") for each in text.split(",") if each.strip()]
    for name, colon, _ in pairs:
        if not colon or not name.strip():
            raise InvalidRequest(f"{text!r} is not of the form NAME:VALUE,NAME:VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error


def main() -> None:
    """Run the command that the arguments of the process name."""
    scripts.run(app, "danube-cli", sys.argv[1:])


if __name__ == "__main__":
    main()
