"""Tests of the names of datasets."""

import pytest

from pydanube_spark.pipelines.lineage_datasets import (
    Dataset,
    datasets_read,
    datasets_written,
)
from pydanube_spark.pipelines.loading import load

FILE = """\
name: p
broker: danube://broker
sources:
  a: {topics: [/default/a, /default/b], dead_letters: {topic: /default/dead}}
  c: {pattern: "/default/c.*", broker: "danube://other:7000,third:7000"}
  f: {files: in/*.csv, format: csv, read: table}
  j: {jdbc: "jdbc:postgresql://user:secret@db:5432/shop", table: public.customers}
sinks:
  t: {input: a, topic: /default/t}
  d: {input: a, format: danube-delta, path: tables/d}
  s: {input: a, format: parquet, path: "s3://bucket/x/y"}
  p: {input: a, format: jdbc, options: {url: "jdbc:postgresql://db/shop", dbtable: o}}
  n: {input: a, format: noop}
"""


@pytest.fixture
def where(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE.replace("a: {topics", "a: {decode: true, topics"))
    pipeline = load(path)
    return pipeline.spec, pipeline.broker, pipeline.directory


def test_sources_have_names_without_secrets(where, tmp_path):
    assert datasets_read(*where) == [
        Dataset("danube://broker:6651", "/default/a"),
        Dataset("danube://broker:6651", "/default/b"),
        Dataset("danube://other:7000", "/default/c.*"),
        Dataset("file", f"{tmp_path}/in/*.csv"),
        Dataset("postgresql://db:5432", "shop.public.customers"),
    ]


def test_sinks_and_dead_letters_have_names(where, tmp_path):
    assert datasets_written(*where) == [
        Dataset("danube://broker:6651", "/default/dead"),
        Dataset("danube://broker:6651", "/default/t"),
        Dataset("file", f"{tmp_path}/tables/d"),
        Dataset("noop", "n"),
        Dataset("postgresql://db", "shop.o"),
        Dataset("s3://bucket", "x/y"),
    ]
