"""
The AsyncAPI 3.0 document of a program: what its workers receive, and what it sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Protocol

from pydanube.client.messages.schema import Schema
from pydanube.client.workers.results import ResultTopic
from pydanube.client.workers.workers import DeclaredProducer, Worker
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import SchemaType

VERSION = "3.0.0"

_BINARY = "application/octet-stream"
_PRIMITIVES: dict[SchemaType, tuple[str, dict[str, Any]]] = {
    SchemaType.STRING: ("text/plain", {"type": "string"}),
    SchemaType.NUMBER: (_BINARY, {"type": "number"}),
    SchemaType.BYTES: (_BINARY, {"type": "string", "format": "binary"}),
}
_OTHER_LANGUAGES = {
    SchemaType.AVRO: ("avro/binary", "application/vnd.apache.avro+json;version=1.9.0"),
    SchemaType.PROTOBUF: (
        "application/x-protobuf",
        "application/vnd.google.protobuf;version=3",
    ),
}


class Declared(Protocol):
    """The workers of a program, and its declared producers."""

    @property
    def producers(self) -> list[DeclaredProducer[Any]]: ...

    def __iter__(self) -> Iterator[Worker]: ...


def asyncapi_document(
    declared: Declared,
    *,
    title: str,
    version: str = "0.1.0",
    description: str = "",
    host: str | None = None,
) -> dict[str, Any]:
    """
    Return the document as plain values, for JSON or YAML.

    Args:
        declared: The ``Workers`` of the program.
        title: The name of the program.
        version: The version of the program.
        description: What the program does, in Markdown.
        host: The host and port of a broker, such as ``danube.example:6651``.

    Raises:
        InvalidSchema: A class cannot be converted to a schema.
    """
    info = {"title": title, "version": version, "description": description}
    document: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {name: value for name, value in info.items() if value},
    }
    if host:
        document["servers"] = {"danube": {"host": host, "protocol": "danube"}}
    parts = _Parts()
    for worker in declared:
        parts.add_worker(worker)
    for producer in declared.producers:
        parts.add_operation(
            "send_" + _words(producer.topic), "send", [producer.topic], producer.schema
        )
    document |= {
        "defaultContentType": "application/json",
        "channels": parts.channels,
        "operations": parts.operations,
        "components": {"messages": parts.messages, "schemas": parts.schemas},
    }
    return document


@dataclass(slots=True)
class _Parts:
    channels: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, Any] = field(default_factory=dict)
    schemas: dict[str, Any] = field(default_factory=dict)

    def add_worker(self, worker: Worker) -> None:
        handler = worker.handler
        name = handler.name.rpartition(".")[2]
        topics = [worker.topic] if isinstance(worker.topic, str) else worker.topic
        settings = {
            "subscription": worker.subscription,
            "type": worker.consumer_options["type"],
            "concurrency": worker.concurrency,
            "batch": worker.batch_max,
        }
        self.add_operation(
            name,
            "receive",
            topics,
            handler.schema,
            description=handler.description,
            settings=settings,
        )
        if worker.results is not None:
            self._add_results(name, worker.results)

    def _add_results(self, name: str, results: ResultTopic) -> None:
        self.add_operation(
            f"{name}_results",
            "send",
            [results.topic],
            results.schema,
            settings={"exactly_once": results.is_transaction},
        )

    def add_operation(
        self,
        name: str,
        action: str,
        topics: Iterable[str],
        schema: Any,
        *,
        description: str = "",
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Add an operation for each topic, with its channel and its message."""
        message = self._message_of(schema)
        for topic in topics:
            channel = self._channel_of(topic)
            self.channels[channel]["messages"].setdefault(
                message, {"$ref": f"#/components/messages/{message}"}
            )
            operation = {
                "action": action,
                "channel": {"$ref": f"#/channels/{channel}"},
                "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
            }
            if description:
                operation["summary"] = description.partition("\n")[0]
                operation["description"] = description
            if settings is not None:
                operation["x-danube"] = settings
            self.operations[_free(name, self.operations)] = operation

    def _channel_of(self, topic: str) -> str:
        for name, channel in self.channels.items():
            if channel["address"] == topic:
                return str(name)
        name = _free(_words(topic), self.channels)
        self.channels[name] = {"address": topic, "messages": {}}
        return name

    def _message_of(self, kind: Any) -> str:
        """Return the name of the message with values of *kind*, which is added."""
        message: dict[str, Any]
        if kind is None:
            message = {"name": "payload", "contentType": _BINARY}
        else:
            schema = Schema.of(kind)
            cls = schema.cls
            shown = getattr(cls, "__name__", None) or schema.message or "value"
            content_type, payload = self._payload_of(schema, _words(shown))
            message = {"name": shown, "contentType": content_type, "payload": payload}
        name = _words(message["name"])
        for known, other in self.messages.items():
            if other == message:
                return str(known)
        name = _free(name, self.messages)
        self.messages[name] = message
        return name

    def _payload_of(self, schema: Schema[Any], name: str) -> tuple[str, dict[str, Any]]:
        if schema.type in _PRIMITIVES:
            content_type, payload = _PRIMITIVES[schema.type]
            if schema.definition == "int64":
                payload = {"type": "integer"}
            return content_type, payload
        if schema.type in _OTHER_LANGUAGES:
            content_type, language = _OTHER_LANGUAGES[schema.type]
            is_avro = schema.type is SchemaType.AVRO
            text = schema.definition
            definition = json.loads(text) if is_avro else text
            return content_type, {"schemaFormat": language, "schema": definition}
        definition = json.loads(schema.definition)
        return "application/json", self._shared(definition, name)

    def _shared(self, definition: Any, name: str) -> dict[str, Any]:
        """Move a JSON Schema and its definitions to the schemas that all share."""
        if not isinstance(definition, dict):
            # True and False are schemas, too.
            return {} if definition else {"not": {}}
        parts = {**definition.pop("$defs", {}), **definition.pop("definitions", {})}
        definition.pop("$schema", None)
        # Values of one class are one schema, and others of its name have a number.
        places: dict[str, str] = {}
        for part in parts:
            places[f"#/$defs/{part}"] = places[f"#/definitions/{part}"] = part
        places["#"] = name
        everything = {**parts, name: definition}
        if definition.keys() == {"$ref"} and definition["$ref"] in places:
            name = places[definition["$ref"]]
            everything = parts
        taken = {
            each: _free(_words(each), self.schemas)
            for each in everything
            if each in self.schemas
            and self.schemas[each] != _relocated(everything[each], places, {})
        }
        for each, found in everything.items():
            place = taken.get(each, _words(each))
            self.schemas[place] = _relocated(found, places, taken)
        return {"$ref": f"#/components/schemas/{taken.get(name, _words(name))}"}


def _relocated(value: Any, places: dict[str, str], taken: dict[str, str]) -> Any:
    """Return *value* with its references to definitions where these are now."""
    if isinstance(value, list):
        return [_relocated(each, places, taken) for each in value]
    if not isinstance(value, dict):
        return value
    target = value.get("$ref")
    if isinstance(target, str) and target in places:
        place = places[target]
        place = taken.get(place, _words(place))
        return {**value, "$ref": f"#/components/schemas/{place}"}
    return {name: _relocated(each, places, taken) for name, each in value.items()}


def _words(text: str) -> str:
    """Return *text* as a name of a part: letters, digits, ``_``, ``-`` and ``.``."""
    found = "".join(c if c.isalnum() and c.isascii() else "_" for c in text.strip("/"))
    return found or "_"


def _free(name: str, taken: dict[str, Any]) -> str:
    """Return *name*, or with a number if there is one already."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
