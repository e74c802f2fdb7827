"""
What a user can say with ``option(...)`` where topics are written, parsed on entry.

``OPTIONS`` is the one place that knows the names: parsing refuses any other, and the
table in ``docs/guide/spark-write.md`` is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName, parse_client_name
from pydanube.reader.read_option_table import URL_DEFAULT
from pydanube.spark.sink import BatchIdentity
from pydanube.spark.sink_options import APP_ID, BATCH_ID, SinkOption, parse_given

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = (
    SinkOption("url", URL_DEFAULT, "The broker; `danube.url` is another name for it."),
    SinkOption(
        "topic",
        "the column `topic`",
        "Where all rows go; the base name of a topic with partitions means all of "
        "them. The column, if there is one as well, is not looked at.",
    ),
    SinkOption(
        "mode",
        "exactly-once",
        "With `exactly-once` a batch is staged by the tasks and published as a whole, "
        "once. With `at-least-once` tasks publish at once: quicker, but what a task "
        "has published before it failed is there twice.",
    ),
    SinkOption(
        "encode",
        "auto",
        "With `auto`, `value` is written as the topic's schema says, and a `payload` "
        "is said to be written with it. With `payload`, payloads are sent as they "
        "are, and no schema is named.",
    ),
    SinkOption(
        "schemaVersion",
        "the topic's, or else the latest",
        "The version of the topic's subject that is written.",
    ),
    APP_ID,
    BATCH_ID,
)

_ALIASES = {"danube.url": "url"}


class Delivery(Enum):
    """How often a message may be published."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Encode(Enum):
    """What rows say of their messages."""

    AUTO = "auto"
    """Values or payloads, of the topic's schema."""
    PAYLOAD = "payload"
    """Payloads, of no schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write, as the user asked for it."""

    url: str = URL_DEFAULT
    topic: str | None = None
    """None: every row says which."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    encode: Encode = Encode.AUTO
    version: int | None = None
    """None: the one that the topic is bound to, or else the latest."""
    identity: BatchIdentity = field(default_factory=BatchIdentity)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """
    What *options*, with names in any case, ask for.

    Raises:
        InvalidConfig: An option is unknown, malformed, or contradicts another.
        InvalidName: The topic's name or the appId is malformed.
    """
    renamed: dict[str, str] = {}
    for name, value in options.items():
        key = _ALIASES.get(name.lower(), name)
        if renamed.setdefault(key, value) != value:
            raise InvalidConfig(f"{key}: given twice with different values")
    given = parse_given(renamed, OPTIONS)
    topic = given.text("topic")
    identity = BatchIdentity.parse(given)
    if identity.app is not None:
        parse_client_name("appId", identity.app)
    encode = Encode(given.choice("encode", [each.value for each in Encode], "auto"))
    version = given.text("schemaVersion", "latest").lower()
    if encode is Encode.PAYLOAD and "schemaVersion" in given:
        raise InvalidConfig("schemaVersion: encode=payload names no schema")
    return WriteOptions(
        url=given.text("url", URL_DEFAULT),
        topic=str(TopicName.parse(topic)) if topic else None,
        delivery=Delivery(
            given.choice("mode", [each.value for each in Delivery], "exactly-once")
        ),
        encode=encode,
        version=None if version == "latest" else given.count("schemaVersion", 1),
        identity=identity,
    )
