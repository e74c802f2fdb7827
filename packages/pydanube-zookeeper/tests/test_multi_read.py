"""The request that reads several nodes, and its answer."""

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    stat_struct,
    write_buffer,
)

from pydanube_zookeeper.multi_read import MultiRead

END = bytes(MultiHeader(-1, True, -1).serialize())
STATE = tuple(range(11))


def answer_with(data):
    header = bytes(MultiHeader(GetData.type, False, -1).serialize())
    return header + write_buffer(data) + stat_struct.pack(*STATE)


def answer_failed(error):
    header = bytes(MultiHeader(-1, False, error.code).serialize())
    return header + int_struct.pack(error.code)


def test_the_answer_has_each_node_or_that_it_is_absent():
    answer = (
        b"before"
        + answer_with(b"abc")
        + answer_failed(NoNodeError)
        + answer_with(b"")
        + answer_with(None)
        + END
    )
    first, absent, empty, nothing = MultiRead.deserialize(answer, len(b"before"))
    assert (first[0], first[1].mzxid, first[1].pzxid) == (b"abc", 1, 10)
    assert absent is None
    assert (empty[0], nothing[0]) == (b"", None)


def test_a_node_that_cannot_be_read_is_an_error():
    with pytest.raises(NoAuthError):
        MultiRead.deserialize(answer_failed(NoAuthError) + END, 0)


def test_a_request_lists_the_nodes():
    sent = MultiRead(["/a", "/bc"]).serialize()
    header = bytes(MultiHeader(GetData.type, False, -1).serialize())
    assert sent == (header + b"\0\0\0\2/a\0" + header + b"\0\0\0\3/bc\0" + END)
