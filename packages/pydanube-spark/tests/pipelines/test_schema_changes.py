"""A pipeline gets the columns that the error of a query names."""

import json

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.new_columns import COLUMNS_MAX
from pydanube_spark.pipelines.schema_changes import with_columns_of

TOPIC = "/default/shop"
FILE = """\
name: shop
sources:
  shop:
    {topic: /default/shop, cdc: debezium, schema: id BIGINT, schema_changes: evolve}
  other: {topic: /default/other, cdc: debezium, schema: id BIGINT}
  decoded:
    {topic: /default/decoded, cdc: debezium, decode: true, schema_changes: evolve}
sinks:
  out: {input: shop, format: danube-delta, path: out}
  others: {input: other, format: danube-delta, path: other}
  decoded: {input: decoded, format: danube-delta, path: decoded}
"""


class EventCatalog:
    """A catalog with one event in a partition."""

    def __init__(self, row, parts=("/default/shop-part-0", "/default/shop-part-1")):
        self._row, self._parts = row, list(parts)
        self.reads = []

    def __call__(self, _):
        return self

    def partitions(self, _):
        return self._parts

    def read(self, topic, base, end):
        self.reads.append((topic, base, end))
        payload = json.dumps({"after": self._row, "op": "c"}).encode()
        yield pa.record_batch({"payload": pa.array([payload], pa.binary())})


@pytest.fixture
def pipeline(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE)
    pipeline = load(file)
    pipeline.state.path.mkdir(parents=True)
    return pipeline


def error(names, topic=TOPIC, offset=7, partition=1):
    return RuntimeError(
        f"[USER_RAISED_EXCEPTION] the message at offset {offset} of {topic}, partition "
        f"{partition}, has columns that this query does not have: {json.dumps(names)} "
        "SQLSTATE: P0001"
    )


def test_the_event_is_read_and_its_columns_are_kept(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x", "a b": 2})
    evolved, note = with_columns_of(pipeline, error(["note", "a b"]), catalog)
    assert catalog.reads == [("/default/shop-part-1", 7, 8)]
    assert note == "starting again with the new columns note STRING, a b BIGINT"
    expected = "id BIGINT, `note` STRING, `a b` BIGINT"
    assert evolved.spec.sources["shop"].schema == expected
    assert load(pipeline.file).spec.sources["shop"].schema == expected
    assert evolved.spec.sources["other"].schema == "id BIGINT"


def test_a_topic_without_partitions_is_its_own(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"}, [TOPIC])
    assert with_columns_of(pipeline, error(["note"], partition=0), catalog)
    assert catalog.reads == [(TOPIC, 7, 8)]


def test_columns_that_the_query_has_are_an_error_like_others(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"})
    evolved, _ = with_columns_of(pipeline, error(["note"]), catalog)
    assert with_columns_of(evolved, error(["note"]), catalog) is None


def test_each_query_of_a_source_gets_the_columns(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"})
    first = with_columns_of(pipeline, error(["note"]), catalog)
    assert with_columns_of(pipeline, error(["note"]), catalog) == first
    assert len(catalog.reads) == 1


def test_a_topic_of_this_name_at_another_broker_is_not_needed(pipeline):
    file = pipeline.file
    other = "  us: {topic: /default/shop, cdc: debezium, schema: id BIGINT, broker: "
    other += '"danube://us:6650", schema_changes: evolve}\nsinks:\n'
    sink = "  us: {input: us, format: danube-delta, path: us}\n"
    file.write_text(FILE.replace("sinks:\n", other + sink))
    catalog = EventCatalog({"id": 1, "note": "x"})

    def new_catalog(options):
        gone = EventCatalog({})
        gone.read = lambda *_: iter(())
        return gone if "us" in options.url else catalog

    evolved, _ = with_columns_of(load(file), error(["note"]), new_catalog)
    assert evolved.spec.sources["shop"].schema == "id BIGINT, `note` STRING"
    assert evolved.spec.sources["us"].schema == "id BIGINT"


@pytest.mark.parametrize(
    "row",
    [{"": 1}, {"_op": 1}, {"_TS": 1}, {"ID": 1}, {"note": 1, "Note": 2}],
)
def test_columns_that_spark_cannot_tell_apart_are_not_kept(pipeline, row):
    with pytest.raises(InvalidConfig, match="optional_columns"):
        with_columns_of(pipeline, error(list(row)), EventCatalog(row))
    assert pipeline.state.read_new_columns() == {}


@pytest.mark.parametrize("name", ['a"] b', 'x", "y"]', "a\\", "z] \n"])
def test_any_other_name_is_a_column(pipeline, name):
    assert with_columns_of(pipeline, error([name]), EventCatalog({name: 1}))
    assert pipeline.state.read_new_columns() == {"shop": {name: "BIGINT"}}


def test_a_message_that_is_gone_and_texts_like_the_error_end_the_query(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"})
    catalog.read = lambda *_: iter(())
    with pytest.raises(InvalidRequest, match="is gone"):
        with_columns_of(pipeline, error(["note"]), catalog)
    cut = RuntimeError(str(error(["note"])).partition('te"]')[0])
    assert with_columns_of(pipeline, cut, catalog) is None
    assert with_columns_of(pipeline, error(["note"], offset=10**30), catalog) is None
    assert with_columns_of(pipeline, error([["note"]]), catalog) is None
    assert with_columns_of(pipeline, error(5), catalog) is None


def test_other_errors_and_sources_do_not_evolve(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"})
    assert with_columns_of(pipeline, RuntimeError("lost"), catalog) is None
    assert with_columns_of(pipeline, error(["note"], "/default/other"), catalog) is None
    assert pipeline.state.read_new_columns() == {}


def newer(topic):
    return RuntimeError(
        f"pydanube.model.errors.InvalidRequest: the message at offset 3 of {topic} has "
        "version 2 of shop, and this query has the columns of version 1. Start it again"
    )


def test_a_decoded_feed_starts_again_for_a_new_version(pipeline):
    found = with_columns_of(pipeline, newer("/default/decoded"))
    assert found == (pipeline, "starting again for version 2 of shop")
    assert with_columns_of(pipeline, newer("/default/other")) is None


def test_a_decoded_feed_starts_again_with_the_columns_of_others(pipeline):
    catalog = EventCatalog({"id": 1, "note": "x"})
    evolved, _ = with_columns_of(pipeline, error(["note"]), catalog)
    found, _ = with_columns_of(pipeline, newer("/default/decoded"))
    assert found == evolved


def test_names_that_are_values_end_the_query(pipeline):
    row = {f"c{at}": at for at in range(COLUMNS_MAX + 1)}
    with pytest.raises(InvalidConfig, match="more than 1000 new columns"):
        with_columns_of(pipeline, error(list(row)), EventCatalog(row))
    assert pipeline.state.read_new_columns() == {}
