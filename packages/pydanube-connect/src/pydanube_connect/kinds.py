"""The kinds of connectors, each with its options, from the class that implements it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from pydanube.declarations.functions import check_function, load_function
from pydanube.declarations.pure.sections import struct_in
from pydanube.model.errors import InvalidConfig
from pydanube.model.suggestions import did_you_mean
from pydanube_connect.connector import Connector, Sink, Source

KINDS = {
    "chat-sink": "pydanube_connect.sinks.chat:ChatSink",
    "clickhouse-sink": "pydanube_connect.sinks.spark:ClickhouseSink",
    "delta-sink": "pydanube_connect.sinks.spark:DeltaSink",
    "elasticsearch-sink": "pydanube_connect.sinks.elasticsearch:ElasticsearchSink",
    "files-sink": "pydanube_connect.sinks.files:FilesSink",
    "files-source": "pydanube_connect.sources.files:FilesSource",
    "generator-source": "pydanube_connect.sources.generator:Generator",
    "http-sink": "pydanube_connect.sinks.http:HttpSink",
    "http-source": "pydanube_connect.sources.http:HttpSource",
    "iceberg-sink": "pydanube_connect.sinks.spark:IcebergSink",
    "kafka-sink": "pydanube_connect.sinks.kafka:KafkaSink",
    "kafka-source": "pydanube_connect.sources.kafka:KafkaSource",
    "kinesis-sink": "pydanube_connect.sinks.kinesis:KinesisSink",
    "kinesis-source": "pydanube_connect.sources.kinesis:KinesisSource",
    "lancedb-sink": "pydanube_connect.sinks.spark:LancedbSink",
    "mail-sink": "pydanube_connect.sinks.mail:MailSink",
    "mqtt-sink": "pydanube_connect.sinks.mqtt:MqttSink",
    "mqtt-source": "pydanube_connect.sources.mqtt:MqttSource",
    "mysql-source": "pydanube_connect.sources.mysql:MysqlSource",
    "nats-sink": "pydanube_connect.sinks.nats:NatsSink",
    "nats-source": "pydanube_connect.sources.nats:NatsSource",
    "objects-source": "pydanube_connect.sources.objects:ObjectsSource",
    "otlp-source": "pydanube_connect.sources.otlp:OtlpSource",
    "postgres-sink": "pydanube_connect.sinks.postgres:PostgresSink",
    "postgres-source": "pydanube_connect.sources.postgres:PostgresSource",
    "qdrant-sink": "pydanube_connect.sinks.qdrant:QdrantSink",
    "rabbitmq-sink": "pydanube_connect.sinks.rabbitmq:RabbitmqSink",
    "rabbitmq-source": "pydanube_connect.sources.rabbitmq:RabbitmqSource",
    "redis-sink": "pydanube_connect.sinks.redis_streams:RedisSink",
    "redis-source": "pydanube_connect.sources.redis_streams:RedisSource",
    "sns-sink": "pydanube_connect.sinks.sns:SnsSink",
    "sql-source": "pydanube_connect.sources.sql:SqlSource",
    "sqs-sink": "pydanube_connect.sinks.sqs:SqsSink",
    "sqs-source": "pydanube_connect.sources.sqs:SqsSource",
    "webhook-source": "pydanube_connect.sources.webhook:WebhookSource",
}
"""The class of each kind.  The name of a kind is the other system and what it is."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind."""

    name: str
    type: str
    default: str
    """Empty if the option is required."""
    help: str


def find_kind(name: str, directory: Path) -> type[Connector]:
    """
    Return the class of the kind *name*.

    *directory* is that of the file which names it, for classes in files of users.

    Raises:
        InvalidConfig: There is no such kind.
        NoSuchFunction: There is no such class.
    """
    if ":" in name:
        check_function(name, directory)
        found = load_function(name, directory)
        if not (isinstance(found, type) and issubclass(found, Source | Sink)):
            raise InvalidConfig(
                f"{name} is neither a pydanube_connect.Source nor a Sink"
            )
        return found
    if name not in KINDS:
        own = [each for each in KINDS if each.startswith(f"{name}-")]
        known = f"; known are {', '.join(own or KINDS)}."
        hint = known if own else did_you_mean(name, KINDS) or known
        raise InvalidConfig(
            f"there is no kind {name!r}{hint} A class of your own is FILE.py:CLASS"
        )
    module, class_name = KINDS[name].split(":")
    kind: type[Connector] = getattr(import_module(module), class_name)
    return kind


def summary_of(kind: type[Connector]) -> str:
    """Return the first line of the class's description."""
    return cleandoc(kind.__doc__ or "").partition("\n")[0]


def options_of(kind: type[Connector]) -> list[Option]:
    """
    Return the options of *kind*, its own first, and the fields of options as ``a.b``.
    """
    return _options(kind.Options, "")


def _options(struct: type[msgspec.Struct], prefix: str) -> list[Option]:
    found = []
    for field in _own_fields_first(struct):
        name = prefix + field.encode_name
        default = "" if field.required else _default_text(field)
        found.append(Option(name, _type_name(field.type), default, _help(field.type)))
        inner = struct_in(field.type)
        if inner is not None:
            found += _options(inner, f"{name}.")
    return found


def _own_fields_first(
    struct: type[msgspec.Struct],
) -> list[msgspec.structs.FieldInfo]:
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    names = [
        name
        for each in struct.__mro__
        for name in vars(each).get("__annotations__", {})
    ]
    return [fields[name] for name in dict.fromkeys(names) if name in fields]


def _help(annotation: Any) -> str:
    for each in get_args(annotation):
        if isinstance(each, msgspec.Meta):
            return " ".join((each.description or "").split())
    return ""


def _default_text(field: Any) -> str:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default is None or default in ({}, [], "") else str(default)


_TYPES = {str: "text", int: "number", float: "number", bool: "true or false"}


def _type_name(annotation: Any) -> str:
    plain = [
        each
        for each in (get_args(annotation) or (annotation,))
        if not isinstance(each, msgspec.Meta) and each is not type(None)
    ]
    first = plain[0]
    if isinstance(first, type) and issubclass(first, Enum):
        return " or ".join(str(each.value) for each in first)
    if first in _TYPES:
        return _TYPES[first]
    origin = get_origin(first)
    if origin is dict:
        return "names with values"
    if origin is list:
        return "a list"
    parts = [each for each in get_args(first) if each is not type(None)]
    return " or ".join(map(_type_name, parts)) if parts else "settings"
