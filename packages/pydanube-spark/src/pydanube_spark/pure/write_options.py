"""
The options of the topic sink.

``OPTIONS`` declares all names.  Parsing refuses any other, and the table in
``docs/guide/spark-write.md`` is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName, parse_client_name
from pydanube_spark.pure.sink import BatchIdentity
from pydanube_spark.pure.sink_options import APP_ID, BATCH_ID, parse_sink_options
from pydanube_spark.reader.pure.option_parsing import Option
from pydanube_spark.reader.pure.read_options import (
    CONNECTION,
    URL,
    URL_DEFAULT,
    parse_broker_url,
)

OPTIONS = (
    URL,
    *CONNECTION,
    Option(
        "topic",
        "the column `topic`",
        "The topic of all rows; the base name of a partitioned topic means all its "
        "partitions. The column `topic` is then ignored.",
    ),
    Option(
        "delivery",
        "exactly-once",
        "With `exactly-once` the tasks stage their messages, and a batch is published "
        "as a whole, once. With `at-least-once` the tasks publish immediately, which "
        "is faster, but messages of a task that failed are published twice.",
        instead_of=("mode",),
    ),
    Option(
        "encode",
        "auto",
        "With `auto`, the column `value` is encoded with the topic's schema, and a "
        "`payload` is labelled with that schema. With `payload`, payloads are sent as "
        "they are, without a schema.",
    ),
    Option(
        "schemaVersion",
        "the topic's, or else the latest",
        "The writer schema: a version of the topic's subject.",
    ),
    APP_ID,
    BATCH_ID,
)


class Delivery(Enum):
    """The delivery guarantee of a write."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Encode(Enum):
    """How rows become payloads."""

    AUTO = "auto"
    """Values or payloads of the topic's schema."""
    PAYLOAD = "payload"
    """Payloads without a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The parsed options of a write."""

    url: str = URL_DEFAULT
    topic: str | None = None
    """None: the column ``topic`` names it for each row."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    encode: Encode = Encode.AUTO
    version: int | None = None
    """None: the version that the topic is bound to, or else the latest."""
    identity: BatchIdentity = field(default_factory=BatchIdentity)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """
    Parse *options*, whose names are in any case.

    Raises:
        InvalidConfig: An option is unknown, malformed, or contradicts another.
        InvalidName: The topic's name or the appId is malformed.
    """
    given = parse_sink_options(options, OPTIONS)
    topic = given.text("topic")
    identity = BatchIdentity.parse(given)
    if identity.app is not None:
        parse_client_name("appId", identity.app)
    encode = Encode(given.choice("encode", [each.value for each in Encode], "auto"))
    version = given.text("schemaVersion", "latest").lower()
    if encode is Encode.PAYLOAD and "schemaVersion" in given:
        raise InvalidConfig("schemaVersion: not with encode=payload")
    return WriteOptions(
        url=parse_broker_url(given),
        topic=str(TopicName.parse(topic)) if topic else None,
        delivery=Delivery(
            given.choice("delivery", [each.value for each in Delivery], "exactly-once")
        ),
        encode=encode,
        version=None if version == "latest" else given.count("schemaVersion", 1),
        identity=identity,
    )
