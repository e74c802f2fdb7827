"""Tests of the names and settings by which Spark finds segments."""

import pytest

from pydanube_spark.pure.hadoop_files import (
    hadoop_url,
    missing_access,
    missing_package,
    opened_otherwise,
    setting_of_session,
    store_settings,
)

URL = "s3a://danube/history/a.parquet"
OURS = "fs.s3a.bucket.danube."
MINIO = {"endpoint": "http://minio:9000", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://danube/a%20 b/c.parquet", "s3a://danube/a%20 b/c.parquet"),
        ("s3a://danube/c.parquet", "s3a://danube/c.parquet"),
        ("gcs://danube/h/c.parquet", "gs://danube/h/c.parquet"),
        ("gs://danube/h/c.parquet", "gs://danube/h/c.parquet"),
        ("fs:///mnt/a%20b/c.parquet", "file:/mnt/a%20b/c.parquet"),
        ("file:///mnt/a%20b/c.parquet", "file:/mnt/a b/c.parquet"),
        ("azblob://danube/c.parquet", None),
        ("redis://host:6379/c.parquet", None),
        ("webdav:///danube/c.parquet", None),
    ],
)
def test_hadoop_finds_the_object_of_a_url(url, expected):
    assert hadoop_url(url) == expected


def test_the_broker_says_where_the_bucket_is():
    style = f"{OURS}path.style.access"
    where = {
        f"{OURS}endpoint": "http://minio:9000",
        f"{OURS}endpoint.region": "us-east-1",
    }
    assert store_settings(URL, MINIO, {}.get) == where | {style: "true"}
    virtual = MINIO | {"enable_virtual_host_style": "true", "secret_key": "x"}
    assert store_settings(URL, virtual, {}.get) == where | {style: "false"}
    amazon = {"region": "eu-central-1"}
    expected = {f"{OURS}endpoint.region": "eu-central-1"}
    assert store_settings(URL, amazon, {}.get) == expected
    assert store_settings("gs://danube/a.parquet", MINIO, {}.get) == {}
    assert store_settings("file:/danube/a.parquet", MINIO, {}.get) == {}


def test_the_session_has_the_last_word_about_the_bucket():
    for endpoint in ("fs.s3a.endpoint", f"{OURS}endpoint"):
        assert store_settings(URL, MINIO, {endpoint: "https://proxy"}.get) == {}
    others = {"fs.s3a.bucket.other.endpoint": "https://proxy"}
    assert len(store_settings(URL, MINIO, others.get)) == 3
    region = {f"{OURS}endpoint.region": "eu-central-1"}
    assert store_settings(URL, MINIO, region.get) == {
        f"{OURS}endpoint": "http://minio:9000",
        f"{OURS}path.style.access": "true",
    }


def test_a_session_can_insist_on_the_endpoint_that_spark_sets_by_default():
    amazon = "s3.amazonaws.com"
    every, own = "fs.s3a.endpoint", f"{OURS}endpoint"
    assert setting_of_session(every, amazon, None) is None
    assert setting_of_session(every, amazon, amazon) == amazon
    assert setting_of_session(own, amazon, None) == amazon
    assert setting_of_session(every, "http://minio:9000", None) == "http://minio:9000"


def test_a_bucket_that_is_open_at_another_endpoint_is_another_one():
    wanted = store_settings(URL, MINIO, {}.get)
    assert opened_otherwise(URL, wanted, wanted.get) is None
    assert opened_otherwise(URL, {}, {}.get) is None
    other = wanted | {f"{OURS}endpoint": "http://other:9000"}
    for opened in (other, {}):
        reason = opened_otherwise(URL, wanted, opened.get)
        assert f"the broker has {MINIO['endpoint']}" in reason


def test_errors_name_the_package_and_the_settings():
    assert "org.apache.hadoop:hadoop-aws" in missing_package(URL)
    assert "gcs-connector" in missing_package("gs://danube/a.parquet")
    refused = missing_access(URL, "403 Forbidden")
    assert f"{URL}: 403 Forbidden" in refused
    assert "spark.hadoop.fs.s3a.secret.key" in refused
    assert "spark.hadoop" not in missing_access("file:/a.parquet", "no such file")
