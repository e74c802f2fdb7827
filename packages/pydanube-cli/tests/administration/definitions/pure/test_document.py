"""Documents are checked before anything is created."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.administration.definitions.pure.document import (
    DOCUMENT_BYTES_MAX,
    BindingDefinition,
    Definitions,
    TopicDefinition,
    encode_definitions,
    parse_definitions,
)


def test_documents_are_read_as_they_were_written():
    given = Definitions(
        topics={"/a/b": TopicDefinition(partitions=3, settings={"limits": "inherit"})},
        bindings={"x": BindingDefinition(member="user:a", roles=["r"], patterns=["*"])},
    )
    assert parse_definitions(encode_definitions(given)) == given


def test_documents_are_sorted():
    first = Definitions(namespaces={"b": {}, "a": {}})
    second = Definitions(namespaces={"a": {}, "b": {}})
    assert encode_definitions(first) == encode_definitions(second)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "malformed|truncated"),
        (b"[]", "Expected `object`"),
        (b'{"version": 2}', "version"),
        (b'{"topic": {}}', "`topic`"),
        (b'{"topics": {"/a/b": {"partition": 1}}}', "`partition`.*topics"),
        (b'{"topics": {"/a/b": {"durability": "x"}}}', "durability"),
        (b"\xff", "malformed|invalid"),
        (b"[" * 100_000, "recursion|Expected"),
    ],
)
def test_malformed_documents_name_the_place(content, place):
    with pytest.raises(InvalidRequest, match=f"(?i){place}"):
        parse_definitions(content)


def test_long_documents_are_refused():
    with pytest.raises(InvalidRequest, match="67,108,865 bytes"):
        parse_definitions(b" " * (DOCUMENT_BYTES_MAX + 1))
