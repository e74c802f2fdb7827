"""What a user may say where topics are written, and what is refused."""

import pytest

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube_spark.pure.write_options import (
    OPTIONS,
    Delivery,
    Encode,
    WriteOptions,
    parse_write_options,
)
from support.fakes.option_tables import options_table
from support.project import ROOT


def test_write_is_exactly_once_by_default():
    assert parse_write_options({}) == WriteOptions()
    assert WriteOptions().delivery is Delivery.EXACTLY_ONCE


def test_write_option_names_are_case_insensitive():
    found = parse_write_options(
        {
            "URL": "danube://host",
            "TOPIC": "/default/a",
            "Delivery": "AT-LEAST-ONCE",
            "encode": "payload",
            "appid": "billing",
            "batchId": "7",
            "checkpointLocation": "/somewhere",
        }
    )
    assert (found.url, found.topic) == ("danube://host", "/default/a")
    assert found.delivery is Delivery.AT_LEAST_ONCE
    assert found.encode is Encode.PAYLOAD
    assert (found.identity.app, found.identity.number) == ("billing", 7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topc": "/default/a"}, "did you mean 'topic'"),
        ({"delivery": "exactly_once"}, "did you mean 'exactly-once'"),
        ({"schemaVersion": "0"}, "schemaVersion: must be a number from 1 up"),
        ({"schemaVersion": "1", "encode": "payload"}, "not with encode=payload"),
        ({"appId": "a", "txnAppId": "b"}, "given twice"),
        ({"danube.url": "danube://b"}, "unknown option 'danube.url'; use 'url'"),
        ({"batchId": "1"}, "set appId, too"),
        ({"mode": "at-least-once"}, "unknown option 'mode'; use 'delivery'"),
    ],
)
def test_wrong_write_option_is_named(options, said):
    with pytest.raises(InvalidConfig, match=said):
        parse_write_options(options)


def test_batch_is_identified_as_in_delta_lake():
    found = parse_write_options({"txnAppId": "billing", "txnVersion": "7"}).identity
    assert (found.app, found.number) == ("billing", 7)


@pytest.mark.parametrize("options", [{"topic": "orders"}, {"appId": "a/b"}])
def test_malformed_topic_or_app_id_is_refused(options):
    with pytest.raises(InvalidName):
        parse_write_options(options)


def test_schema_version_may_be_latest():
    assert parse_write_options({"schemaVersion": "latest"}).version is None
    assert parse_write_options({"schemaVersion": "3"}).version == 3


def test_the_guide_has_all_options():
    guide = ROOT / "docs/guide/spark-write.md"
    assert options_table(OPTIONS) in guide.read_text()
