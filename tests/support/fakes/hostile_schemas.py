"""Schemas and payloads that are meant to stop a broker or a client."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydanube.model.schemas import SchemaType

AVRO = SchemaType.AVRO
JSON = SchemaType.JSON_SCHEMA
PROTOBUF = SchemaType.PROTOBUF


@dataclass(frozen=True)
class Hostile:
    """A schema, and payloads that are published with it."""

    name: str
    type: SchemaType
    definition: str
    payloads: tuple[bytes, ...]
    is_refused: bool = False
    """Whether the schema itself may not be registered."""
    is_bad: bool = True
    """Whether all payloads may not be published."""


def record_of(name: str, **fields: Any) -> dict[str, Any]:
    """An Avro record whose fields have these types."""
    parts = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": parts}


def long_of(number: int) -> bytes:
    """An integer in the encoding of Avro."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@cache
def hostile_schemas() -> tuple[Hostile, ...]:
    """All of them."""
    return (*_avro(), *_json(), *_protobuf())


def _avro() -> list[Hostile]:
    array = {"type": "array", "items": "null"}
    doubled: Any = "null"
    for number in range(40):
        again = f"R{number - 1}" if number else "null"
        doubled = record_of(f"R{number}", a=doubled, b=again)
    chain = {"f0": record_of("R0", x="int")}
    for number in range(1, 1500):
        chain[f"f{number}"] = record_of(f"R{number}", x=f"R{number - 1}", y="int")
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    linked = record_of("R", n=["null", "R"])
    tree = record_of("R", n={"type": "array", "items": "R"})

    def avro(name: str, declared: Any, *payloads: bytes, **more: bool) -> Hostile:
        return Hostile(name, AVRO, json.dumps(declared), payloads, **more)

    return [
        avro("endless", record_of("R", n="R"), b"", is_refused=True),
        avro(
            "endless through another",
            record_of("R", n=record_of("S", r=["R", "S"])),
            *(b"", b"\x00" * 5000),
            is_refused=True,
        ),
        avro("linked list", linked, b"\x02" * 5000, b"\x02" * 60_000, b"\x02" * 300),
        avro("tree", tree, b"\x02" * 5000, b"\x01\x01" * 30_000),
        avro(
            "map", record_of("R", n={"type": "map", "values": "R"}), b"\x02\x00" * 9999
        ),
        avro("nulls", array, long_of(2**31) + b"\x00", long_of(2**62) + b"\x00"),
        avro(
            "nested nulls",
            {"type": "array", "items": array},
            long_of(9000) + (long_of(9000) + b"\x00") * 9000 + b"\x00",
        ),
        avro(
            "empty records",
            {"type": "array", "items": record_of("E")},
            long_of(2**31) + b"\x00",
        ),
        avro(
            "empty fixed",
            {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
            long_of(-(2**31)) + b"\x00\x00",
        ),
        avro("integers", {"type": "array", "items": "int"}, long_of(2**62) + b"\x00"),
        avro("text", "string", long_of(2**62), long_of(-5) + b"abc", b"\xff" * 20),
        avro("long decimal", decimal, long_of(50_000) + b"\x7f" * 50_000),
        avro("doubled records", doubled, b"", is_refused=True),
        avro("long chain", record_of("Z", **chain), b"\x00" * 3000, is_refused=True),
        avro("precision", decimal | {"precision": 10**9}, b"\x00", is_refused=True),
        avro(
            "many symbols",
            {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(50_000)]},
            *(b"\x00",),
            is_refused=True,
        ),
        avro("odd name", record_of("R\u00e9\0", a="int"), b"\x00", is_refused=True),
    ]


def _json() -> list[Hostile]:
    doubled = {
        f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2}
        for number in range(40)
    }
    doubled["d40"] = {"type": "string"}
    below: Any = {"type": "string"}
    for _ in range(20):
        below = {"allOf": [{"properties": {"a": below}}] * 2}
    branches = [
        {"properties": {"a": {"$ref": "#"}, "z": {"const": number}}}
        for number in range(2)
    ]
    deep = b'{"a":' * 16 + b"1" + b',"z":7}' * 16
    patterns = {"items": {"pattern": "^(?:(a+)+)+(?=b)$"}}

    def plain(name: str, document: Any, *payloads: bytes, **more: bool) -> Hostile:
        return Hostile(name, JSON, json.dumps(document), payloads, **more)

    return [
        plain(
            "doubled references",
            {"$ref": "#/$defs/d0", "$defs": doubled},
            b"1",
            is_refused=True,
        ),
        plain("branches", {"oneOf": [{"type": "null"}, *branches]}, deep),
        plain("in place", {"$ref": "#"}, b"1", is_bad=False),
        plain(
            "in place among others",
            {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]},
            *(b"1", b'"text"'),
            is_refused=True,
        ),
        plain("backtracking", patterns, json.dumps(["a" * 40] * 500).encode()),
        plain(
            "format regex",
            {"items": {"format": "regex"}},
            json.dumps(["(" * 5000, r"(\w{99}){99}"]).encode(),
        ),
        plain(
            "deep value",
            {"items": {"$ref": "#"}},
            b"[" * 300 + b"]" * 300,
            is_bad=False,
        ),
        plain("deeper value", {}, b"[" * 100_000 + b"]" * 100_000, b"[" * 100_000),
        plain("numbers", {"type": "number"}, b"1e999999999", b"NaN", b"1" * 5000),
        plain("text", {"type": "object"}, b"\xff\xfe", b'"\\ud800"', b"", b"{}{}"),
        plain(
            "unevaluated",
            {
                "anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {}}],
                "unevaluatedProperties": False,
            },
            b'{"a":' * 30 + b'{"b":1}' + b"}" * 30,
        ),
        plain(
            "unique",
            {"uniqueItems": True, "items": {"$ref": "#"}},
            b"[" * 100 + b",".join([b"[1]"] * 2000) + b"]" * 100,
        ),
    ]


def _protobuf() -> list[Hostile]:
    header = 'syntax = "proto3";\n'
    doubled = header + "message M0 { int32 a = 1; }\n"
    for number in range(1, 41):
        doubled += (
            f"message M{number} {{ M{number - 1} a = 1; M{number - 1} b = 2; }}\n"
        )
    doubled = doubled.replace("message M0 ", "message M0x ").replace("M0 ", "M0x ")
    linked = header + "message R { R n = 1; string s = 2; }"
    names = [f"M{number}" for number in range(12)]
    all_of_all = header + "".join(
        f"message {name} {{ "
        + " ".join(f"{other} f{n} = {n + 1};" for n, other in enumerate(names))
        + " }\n"
        for name in names
    )
    nested = header + "message A {" * 100 + "int32 a = 1;" + "}" * 100
    many = (
        header + "message M {" + "".join(f"int32 f{n} = {n};" for n in range(1, 11_000))
    )
    many += "}"
    payload = b""
    for _ in range(150):
        payload = b"\x0a" + _varint(len(payload)) + payload

    def proto(name: str, text: str, *payloads: bytes, **more: bool) -> Hostile:
        return Hostile(name, PROTOBUF, text, payloads, **more)

    return [
        proto("recursive message", linked, payload, b"\x12\x02\xff\xfe", b"\x0a\xff"),
        proto("doubled messages", doubled, b"\xff"),
        proto("all of all", all_of_all, b"\xff"),
        proto("nested messages", nested, b"\x00", is_refused=True),
        proto("many fields", many, b"\x00", is_refused=True),
        proto(
            "times",
            header
            + 'import "google/protobuf/timestamp.proto";\n'
            + "message T { google.protobuf.Timestamp at = 1; }",
            b"\x0a\x0a\x08" + _varint(2**62),
            is_bad=False,
        ),
        proto(
            "structures",
            header
            + 'import "google/protobuf/struct.proto";\n'
            + "message T { google.protobuf.Value v = 1; }",
            b"\x0a\x09\x11" + struct.pack("<d", float("inf")),
            is_bad=False,
        ),
        proto(
            "any",
            header
            + 'import "google/protobuf/any.proto";\n'
            + "message T { google.protobuf.Any v = 1; }",
            b"\x0a\x05\x0a\x03a/b",
            is_bad=False,
        ),
    ]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
