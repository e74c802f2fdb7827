"""The defaults of columns that newer versions of a schema have added."""

import json
from types import SimpleNamespace

from pydanube import Schema
from pydanube_spark.pipelines.added_columns import added_defaults, defaults_at


def avro(**fields):
    """A change event whose rows have these fields, each a type and a default."""
    listed = [
        {"name": name, "type": kind} | ({} if default is ... else {"default": default})
        for name, (kind, default) in fields.items()
    ]
    row = {"type": "record", "name": "Row", "fields": listed}
    before = {"name": "before", "type": ["null", row], "default": None}
    return Schema.avro(
        json.dumps({"type": "record", "name": "Event", "fields": [before]})
    )


OLD = avro(id=("long", ...), level=("int", 1))
NEW = avro(
    id=("long", ...),
    level=("int", 1),
    note=("string", ""),
    vip=("boolean", False),
    city=(["null", "string"], None),
    tags=({"type": "array", "items": "string"}, []),
)


def test_columns_that_only_the_newest_version_has_count_with_their_defaults():
    assert added_defaults([OLD, NEW]) == {"note": "", "vip": False}
    assert added_defaults([OLD, NEW, NEW]) == {"note": "", "vip": False}
    assert added_defaults([NEW, OLD]) == {}
    assert added_defaults([NEW]) == {}
    assert added_defaults([]) == {}


def test_fields_that_messages_of_protobuf_lack_are_zero():
    text = 'syntax = "proto3"; message Order {{ int64 id = 1; {} }}'
    more = "string note = 2; double total = 3; repeated int32 sizes = 4;"
    versions = [Schema.protobuf(text.format(each)) for each in ("", more)]
    assert added_defaults(versions) == {"note": "", "total": 0}


def test_values_that_json_lacks_are_null():
    old = {"type": "object", "properties": {"id": {"type": "integer"}}}
    note = {"note": {"type": "string", "default": "x"}}
    new = {"type": "object", "properties": {**old["properties"], **note}}
    versions = [Schema.json_schema(json.dumps(each)) for each in (old, new)]
    assert added_defaults(versions) == {}


def test_the_versions_are_those_of_the_subject_of_the_topics():
    versions = {
        number: SimpleNamespace(type=each.type, definition=each.definition, message="")
        for number, each in ((1, OLD), (2, NEW))
    }
    catalog = SimpleNamespace(
        subject_of={"/default/a": "a", "/default/b": None}.get,
        subject=lambda name: SimpleNamespace(versions=[2, 1] if name == "a" else []),
        schema_version=lambda _, number: versions[number],
    )
    assert defaults_at(catalog, ["/default/a"]) == {"note": "", "vip": False}
    assert defaults_at(catalog, ["/default/b"]) == {}
