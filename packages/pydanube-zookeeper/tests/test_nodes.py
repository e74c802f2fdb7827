"""The names of nodes in ZooKeeper, and what is in them."""

import pytest

from pydanube.model.errors import MetadataUnavailable
from pydanube_zookeeper.pure.nodes import (
    Head,
    LogEntry,
    Nodes,
    Write,
    decode_entry,
    decode_head,
    encode_entry,
    encode_head,
)

NODES = Nodes("shop")


def test_nodes_are_below_the_name_of_the_cluster():
    assert NODES.head == "/danube/shop/head"
    assert NODES.entry(7) == "/danube/shop/log/00000000000000000007"
    assert NODES.session("ab") == "/danube/shop/sessions/ab"
    assert NODES.value("/topics/a b", None) == "/danube/shop/values/%2Ftopics%2Fa%20b"
    assert NODES.value("/x", "ab") == "/danube/shop/values/%2Fx:ab"


@pytest.mark.parametrize("path", ["/a", "/a:b", "/%2F", "/é/中/🦆", "/..", "/~-._"])
@pytest.mark.parametrize("session_id", [None, "ab12"])
def test_the_name_of_a_node_gives_the_path_and_the_session(path, session_id):
    name = NODES.value(path, session_id).removeprefix(f"{NODES.values}/")
    assert "/" not in name
    assert name.isascii()
    assert NODES.path_of(name) == (path, session_id)


def test_a_head_is_readable_text():
    head = Head(number=5, first=2)
    assert encode_head(head) == b'{"format":1,"number":5,"first":2}'
    assert decode_head(encode_head(head)) == head


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "is damaged"), (b'{"format":2}', "has format 2; this version of pydanube")],
)
def test_another_head_is_refused(data, message):
    with pytest.raises(MetadataUnavailable, match=message):
        decode_head(data)


def test_an_entry_keeps_values_deletions_and_sessions():
    changes = {
        "/a": Write(value=b"\x00\xff"),
        "/b": Write(value=None, session_id="s"),
        "/c": None,
    }
    entry = LogEntry(writer="w", attempt=3, first=1, changes=changes)
    assert decode_entry(encode_entry(entry)) == entry
    with pytest.raises(MetadataUnavailable, match=r"log of changes .* is damaged"):
        decode_entry(encode_entry(entry)[:-3])
