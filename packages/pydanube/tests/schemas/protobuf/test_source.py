"""The source of a descriptor compiles to the same descriptor."""

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.protobuf.compiler import compile_proto
from pydanube.schemas.protobuf.source import source_of
from pydanube.wire.pb import danube_admin_pb2, stream_pb2

PROTO2 = """
syntax = "proto2";
package shop.v1;
import "google/protobuf/timestamp.proto";

enum Kind {
  option allow_alias = true;
  FIRST = 1;
  ALSO_FIRST = 1;
  reserved 5, 7 to 9, 20 to max;
  reserved "OLD";
}

message Order {
  required int64 id = 1;
  optional string note = 2 [default = "a \\"quoted\\" \\303\\274"];
  optional bytes raw = 3 [default = "\\001\\377"];
  optional Kind kind = 4 [default = ALSO_FIRST];
  optional double price = 5 [default = inf];
  repeated sint32 counts = 6 [packed = true];
  map<string, Line> lines = 7;
  optional google.protobuf.Timestamp at = 8 [json_name = "when"];
  message Line {
    optional bool is_there = 1;
    enum State { ON = 0; }
    optional State state = 2;
  }
  oneof how { string card = 9; Line line = 10; }
  extensions 100 to 199, 500 to max;
  reserved 20 to 29, 31;
  reserved "gone", "lost";
}
"""
PROTO3 = """
syntax = "proto3";
message A {
  int32 plain = 1;
  optional int32 maybe = 2;
  repeated int32 many = 3 [packed = false];
  oneof one { A a = 4; string text = 5; }
  map<int32, bytes> by_number = 6;
}
"""


def descriptor_of(text):
    pool = descriptor_pool.DescriptorPool()
    for file in compile_proto(text):
        pool.Add(file)
    return pool.FindFileByName("schema.proto")


def plain(file):
    """Return the relevant parts of a file's descriptor."""
    found = FileDescriptorProto()
    file.CopyToProto(found)
    found.name = "schema.proto"
    found.ClearField("service")
    found.ClearField("options")
    for message in found.message_type:
        make_plain(message)
    return found


def make_plain(message):
    """Sort the entries of maps, and drop default names in JSON."""
    for field in message.field:
        if field.json_name != "when":
            field.ClearField("json_name")
    for nested in message.nested_type:
        make_plain(nested)
    nested = sorted(message.nested_type, key=lambda each: each.name)
    del message.nested_type[:]
    message.nested_type.extend(nested)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [PROTO2, PROTO3, 'syntax = "proto3";'], ids=["proto2", "proto3", "empty"]
)
def test_source_of_a_compiled_file_compiles_to_the_same(text):
    file = descriptor_of(text)
    assert plain(descriptor_of(source_of(file))) == plain(file)


@pytest.mark.slow
@pytest.mark.parametrize("module", [stream_pb2, danube_admin_pb2])
def test_generated_classes_have_a_source(module):
    file = module.DESCRIPTOR
    assert plain(descriptor_of(source_of(file))).message_type == (
        plain(file).message_type
    )


def built(**fields):
    pool = descriptor_pool.DescriptorPool()
    if fields.get("dependency"):
        pool.Add(FileDescriptorProto(name=fields["dependency"][0]))
    pool.Add(FileDescriptorProto(name="x.proto", **fields))
    return pool.FindFileByName("x.proto")


def test_unsupported_features_are_refused():
    with pytest.raises(InvalidSchema, match=r"imports shop\.proto"):
        source_of(built(dependency=["shop.proto"]))
    with pytest.raises(InvalidSchema, match="an edition"):
        source_of(built(syntax="editions", edition=1000))
    group = {"name": "g", "number": 1, "type": 10, "label": 1, "type_name": ".M.G"}
    message = {"name": "M", "field": [group], "nested_type": [{"name": "G"}]}
    with pytest.raises(InvalidSchema, match="is a group"):
        source_of(built(message_type=[message]))
    assert "message Timestamp" in source_of(Timestamp.DESCRIPTOR.file)
