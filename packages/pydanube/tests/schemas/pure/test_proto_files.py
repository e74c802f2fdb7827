"""Definitions with several ``.proto`` files."""

import pytest

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.protobuf import ProtobufSchema
from pydanube.schemas.pure.proto_files import (
    FILES_MAX,
    ProtoFile,
    join_files,
    split_files,
)

MAIN = 'syntax = "proto3";\n\nmessage M { int64 id = 1; }\n'


def test_files_are_found_again():
    files = {ProtoFile("a.proto"): "one\n\n", ProtoFile("b/c.proto", "s", 2): ""}
    assert split_files(join_files(files, MAIN)) == (files, MAIN)
    assert join_files({}, MAIN) == MAIN
    assert split_files(MAIN) == ({}, MAIN)


@pytest.mark.parametrize(
    "text",
    [
        "//danube:file {}\n//danube:main\n",
        "//danube:file [\n//danube:main\n",
        '//danube:file {"name": "a.proto"}\n',
        '//danube:file {"name": "../a"}\n//danube:main\n',
        '//danube:file {"name": "a", "more": 1}\n//danube:main\n',
        '//danube:file {"name": "a"}\n//danube:file {"name": "a"}\n//danube:main\n',
        "".join(f'//danube:file {{"name": "{n}"}}\n' for n in range(FILES_MAX + 1))
        + "//danube:main\n",
    ],
)
def test_malformed_lines_before_files_are_refused(text):
    with pytest.raises(InvalidSchema):
        split_files(text)


def test_files_cannot_contain_others():
    with pytest.raises(InvalidSchema, match="cannot begin"):
        join_files({ProtoFile("a"): "x\n//danube:main\n"}, MAIN)


def test_files_that_import_each_other_are_refused():
    files = {
        ProtoFile("a.proto"): 'syntax = "proto3"; import "b.proto";',
        ProtoFile("b.proto"): 'syntax = "proto3";\nimport "a.proto";',
    }
    main = 'syntax = "proto3"; import "a.proto"; message M {}'
    with pytest.raises(InvalidSchema, match=r"a\.proto.* recursively"):
        ProtobufSchema(join_files(files, main))


def test_main_file_may_import_a_file_with_its_own_name():
    files = {ProtoFile("schema.proto"): 'syntax = "proto3"; message Part {}'}
    main = 'syntax = "proto3"; import "schema.proto"; message M { Part part = 1; }'
    schema = ProtobufSchema(join_files(files, main))
    assert schema.message.full_name == "M"
    assert schema.message_path == (0,)


def test_other_text_of_a_file_is_another_schema():
    main = 'syntax = "proto3"; import "a.proto"; message M { A a = 1; }'
    found = {
        ProtobufSchema(
            join_files(
                {ProtoFile("a.proto"): f'syntax = "proto3"; message A {{ {field} }}'},
                main,
            )
        ).fingerprint
        for field in ("int64 a = 1;", "string a = 1;", "int64  a = 1;")
    }
    assert len(found) == 2
