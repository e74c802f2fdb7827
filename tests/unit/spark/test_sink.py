"""Which batch of whom is written."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.spark.sink import BatchIdentity, BatchKey, digest
from pydanube.spark.sink_options import APP_ID, BATCH_ID, parse_sink_options


def identity(**options):
    return BatchIdentity.parse(parse_sink_options(options, (APP_ID, BATCH_ID)))


def test_a_stream_has_its_own_name_and_numbers():
    found = identity()
    found.check(is_stream=True)
    assert found.key("query", 7, is_stream=True) == BatchKey("query", 7, "query")


def test_a_stream_may_be_called_otherwise():
    found = identity(appId="orders")
    found.check(is_stream=True)
    assert found.key("query", 7, is_stream=True) == BatchKey("orders", 7, "query")
    assert str(found.key("query", 7, is_stream=True)) == "orders:7"


def test_a_batch_write_is_one_of_its_own_unless_it_is_said_which():
    assert identity().key("job", 0, is_stream=False) == BatchKey("job", 0, "")
    said = identity(appId="nightly", batchId="0")
    said.check(is_stream=False)
    assert said.key("job", 0, is_stream=False) == BatchKey("nightly", 0, "")


def test_what_would_be_taken_for_a_repetition_is_refused():
    with pytest.raises(InvalidConfig, match="needs batchId too"):
        identity(appId="nightly").check(is_stream=False)
    with pytest.raises(InvalidConfig, match="give appId too"):
        identity(batchId="3")
    with pytest.raises(InvalidConfig, match="numbers its batches by itself"):
        identity(appId="a", batchId="3").check(is_stream=True)


def test_a_digest_tells_where_one_part_ends():
    assert digest("ab", "c") != digest("a", "bc")
