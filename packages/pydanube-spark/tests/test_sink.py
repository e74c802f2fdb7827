"""The keys of batches and tasks."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, digest
from pydanube_spark.pure.sink_options import APP_ID, BATCH_ID, parse_sink_options


def identity(**options):
    return BatchIdentity.parse(parse_sink_options(options, (APP_ID, BATCH_ID)))


def test_a_stream_has_its_own_name_and_numbers():
    found = identity()
    found.check(is_stream=True)
    assert found.key("query", 7, is_stream=True) == BatchKey("query", 7, "query")


def test_app_id_replaces_the_query_id_of_a_stream():
    found = identity(appId="orders")
    found.check(is_stream=True)
    assert found.key("query", 7, is_stream=True) == BatchKey("orders", 7, "query")
    assert str(found.key("query", 7, is_stream=True)) == "orders:7"


def test_batch_write_has_its_own_key_unless_set():
    assert identity().key("job", 0, is_stream=False) == BatchKey("job", 0, "")
    said = identity(appId="nightly", batchId="0")
    said.check(is_stream=False)
    assert said.key("job", 0, is_stream=False) == BatchKey("nightly", 0, "")


def test_batch_identity_that_could_skip_a_batch_is_refused():
    with pytest.raises(InvalidConfig, match="needs batchId, too"):
        identity(appId="nightly").check(is_stream=False)
    with pytest.raises(InvalidConfig, match="set appId, too"):
        identity(batchId="3")
    with pytest.raises(InvalidConfig, match="numbers its batches itself"):
        identity(appId="a", batchId="3").check(is_stream=True)


def test_digest_depends_on_the_boundaries_of_parts():
    assert digest("ab", "c") != digest("a", "bc")
