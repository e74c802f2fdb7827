"""What a user can say with option(...)."""

from pathlib import Path

import pytest

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube.spark.options import (
    EARLIEST,
    LATEST,
    OPTIONS,
    Mode,
    ValueOptions,
    options_table,
    parse_options,
)


def stream(**options):
    return parse_options({"subscribe": "/default/a"} | options, Mode.STREAM)


def batch(**options):
    return parse_options({"subscribe": "/default/a"} | options, Mode.BATCH)


def test_names_are_taken_in_any_case_and_topics_are_sorted():
    found = parse_options(
        {"SUBSCRIBE": "/default/b, /default/a,/default/b", "maxoffsetspertrigger": "5"},
        Mode.STREAM,
    )
    assert found.topics == ("/default/a", "/default/b")
    assert found.offsets_per_trigger_max == 5


def test_defaults_are_those_of_sparks_kafka_source():
    assert batch().starting.offset == EARLIEST
    assert batch().ending.offset == LATEST
    assert stream().starting.offset == LATEST
    assert stream().fail_on_data_loss


def test_the_url_has_two_names_that_must_agree():
    assert stream(**{"danube.url": "danube://b:1"}).url == "danube://b:1"
    assert stream(url="danube://b:1").url == "danube://b:1"
    with pytest.raises(InvalidConfig, match="url"):
        stream(**{"danube.url": "danube://b:1", "url": "danube://c:1"})


def test_a_misspelt_option_is_refused_with_a_suggestion():
    with pytest.raises(InvalidConfig, match="did you mean 'startingOffsets'"):
        stream(startingOffset="earliest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"subscribe": "/default/a", "subscribePattern": ".*"}, "exactly one"),
        ({"subscribe": " , "}, "no topic"),
        ({"subscribePattern": "("}, "subscribePattern"),
    ],
)
def test_what_to_read_is_said_exactly_once(options, message):
    with pytest.raises(InvalidConfig, match=message):
        parse_options(options, Mode.STREAM)


def test_a_malformed_topic_is_refused():
    with pytest.raises(InvalidName):
        parse_options({"subscribe": "orders"}, Mode.BATCH)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "first"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", "{}"),
        ("startingOffsets", '{"/default/a": -3}'),
        ("startingOffsets", '{"/default/a": true}'),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "perhaps"),
        ("fetchOffset.numRetries", "x"),
        ("endingOffsets", "latest"),
    ],
)
def test_a_malformed_value_is_refused_with_the_option_s_name(name, value):
    with pytest.raises(InvalidConfig, match=name):
        stream(**{name: value})


def test_a_batch_cannot_start_at_the_end_or_end_at_the_start():
    with pytest.raises(InvalidConfig, match="startingOffsets"):
        batch(startingOffsets="latest")
    with pytest.raises(InvalidConfig, match="endingOffsets"):
        batch(endingOffsets="earliest")


def test_offsets_are_given_topic_by_topic():
    found = batch(
        startingOffsets='{"/default/a": 23}', endingOffsets='{"/default/a": -1}'
    )
    assert found.starting.by_topic == {"/default/a": 23}
    assert found.ending.by_topic == {"/default/a": LATEST}


def test_the_guide_has_the_table_of_all_options():
    guide = Path(__file__).parents[3] / "docs" / "guide" / "spark.md"
    assert options_table() in guide.read_text()
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_values_are_read_only_where_it_is_said():
    assert batch().values is None
    assert batch(decode="false").values is None
    assert batch(decode="true").values == ValueOptions()


def test_a_version_may_be_named_and_it_is_remembered_that_it_was():
    found = stream(decode="true", schemaVersion="3").values
    assert (found.version, found.is_version_given) == (3, True)
    found = stream(decode="true", schemaVersion="Latest").values
    assert (found.version, found.is_version_given) == (None, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schemaVersion": "1"}, "schemaVersion: only with decode=true"),
        ({"onUndecodable": "null"}, "onUndecodable: only with decode=true"),
        ({"decode": "json"}, "decode: must be true or false"),
        ({"decode": "true", "schemaVersion": "0"}, "schemaVersion"),
        ({"decode": "true", "onUndecodable": "skip"}, "must be fail or null"),
    ],
)
def test_a_mistake_about_values_is_named(options, message):
    with pytest.raises(InvalidConfig, match=message):
        batch(**options)


def test_before_the_mode_is_known_the_options_of_all_are_taken():
    given = {"subscribe": "/default/a", "endingOffsets": "latest"}
    assert parse_options(given | {"maxOffsetsPerTrigger": "3"}, None)
