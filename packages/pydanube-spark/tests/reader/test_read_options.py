"""What a user can say with option(...)."""

import pytest

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube_spark.reader.pure.bounds import EARLIEST, LATEST
from pydanube_spark.reader.pure.read_options import (
    OPTIONS,
    Mode,
    ValueOptions,
    parse_read_options,
)
from support.fakes.option_tables import options_table
from support.project import ROOT


def stream(**options):
    return parse_read_options({"subscribe": "/default/a"} | options, Mode.STREAM)


def batch(**options):
    return parse_read_options({"subscribe": "/default/a"} | options, Mode.BATCH)


def test_names_are_taken_in_any_case_and_topics_are_sorted():
    found = parse_read_options(
        {"SUBSCRIBE": "/default/b, /default/a,/default/b", "maxoffsetspertrigger": "5"},
        Mode.STREAM,
    )
    assert found.topics == ("/default/a", "/default/b")
    assert found.trigger_rows_max == 5


def test_defaults_are_those_of_sparks_kafka_source():
    assert batch().starting.value == EARLIEST
    assert batch().ending.value == LATEST
    assert stream().starting.value == LATEST
    assert stream().fail_on_data_loss


def test_files_with_credentials_are_in_the_url():
    found = stream(**{"url": "danube://b:1", "auth.apiKeyFile": "/key"})
    assert found.url == "danube://b:1?api_key_file=/key"
    found = batch(**{"url": "danube://b:1", "auth.tokenFile": "/token"})
    assert found.url == "danube://b:1?token_file=/token"
    plain = {"url": "danube://b:1", "auth.allowPlaintextCredentials": "True"}
    assert batch(**plain).url == "danube://b:1?allow_plaintext_credentials=true"
    with pytest.raises(InvalidConfig, match="'1'; it must be true or false"):
        batch(**plain | {"auth.allowPlaintextCredentials": "1"})


def test_a_misspelt_option_is_refused_with_a_suggestion():
    with pytest.raises(InvalidConfig, match="did you mean 'startingOffsets'"):
        stream(startingOffset="earliest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"subscribe": "/default/a", "subscribePattern": ".*"}, "exactly one"),
        ({"subscribe": " , "}, "at least one topic"),
        ({"subscribePattern": "("}, "subscribePattern"),
    ],
)
def test_exactly_one_selection_option_is_required(options, message):
    with pytest.raises(InvalidConfig, match=message):
        parse_read_options(options, Mode.STREAM)


def test_a_malformed_topic_is_refused():
    with pytest.raises(InvalidName):
        parse_read_options({"subscribe": "orders"}, Mode.BATCH)


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
    assert found.starting.by_name == {("/default/a", None): 23}
    assert found.ending.by_name == {("/default/a", None): LATEST}


def test_the_guide_has_the_table_of_all_options():
    guide = ROOT / "docs" / "guide" / "spark.md"
    assert options_table(OPTIONS, has_modes=True) in guide.read_text()
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_values_are_decoded_only_if_requested():
    assert batch().values is None
    assert batch(decode="false").values is None
    assert batch(decode="true").values == ValueOptions()


def test_given_schema_version_is_remembered():
    found = stream(decode="true", schemaVersion="3").values
    assert (found.version, found.is_version_given) == (3, True)
    found = stream(decode="true", schemaVersion="Latest").values
    assert (found.version, found.is_version_given) == (None, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schemaVersion": "1"}, "schemaVersion: only with decode=true"),
        ({"onUndecodable": "null"}, "onUndecodable: only with decode=true"),
        ({"decode": "yes"}, "decode: must be true or false or json"),
        ({"decode": "json", "schemaVersion": "1"}, "only with decode=true; with"),
        ({"decode": "true", "schemaVersion": "0"}, "schemaVersion"),
        ({"decode": "true", "onUndecodable": "skip"}, "must be fail or null"),
    ],
)
def test_wrong_value_option_is_named(options, message):
    with pytest.raises(InvalidConfig, match=message):
        batch(**options)


def test_without_a_mode_options_of_both_modes_are_allowed():
    given = {"subscribe": "/default/a", "endingOffsets": "latest"}
    assert parse_read_options(given | {"maxOffsetsPerTrigger": "3"}, None)


def selected(options, *names):
    found = parse_read_options(options, Mode.STREAM)
    return [name for name in names if found.selects(name)]


ORDERS = "/default/orders"
NAMES = [f"{ORDERS}-part-0", f"{ORDERS}-part-1", "/default/plain", "/other/orders"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": ORDERS}, NAMES[:2]),
        ({"subscribe": NAMES[1]}, [NAMES[1]]),
        ({"subscribe": f"{ORDERS}, /default/plain"}, NAMES[:3]),
        ({"subscribePattern": "/default/.*"}, NAMES[:3]),
        ({"subscribePattern": "/.*/orders"}, [*NAMES[:2], NAMES[3]]),
        ({"subscribePattern": ".*-part-1"}, [NAMES[1]]),
        (
            {"assign": '{"/default/orders": [1, 7], "/other/orders": [0]}'},
            [*NAMES[1::2]],
        ),
        ({"subscribePattern": ".*", "filter.partitions": "1, 5"}, [NAMES[1]]),
        ({"subscribePattern": ".*", "filter.partitions": "0"}, [NAMES[0], *NAMES[2:]]),
    ],
)
def test_topics_are_selected_by_name_by_pattern_or_by_partition(options, expected):
    assert selected(options, *NAMES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("2k", 2048),
        ("64m", 64 << 20),
        ("64MB", 64 << 20),
        ("1 g", 1 << 30),
    ],
)
def test_bytes_have_units(text, expected):
    assert stream(maxBytesPerTrigger=text).trigger_bytes_max == expected
    assert batch(maxBytesPerPartition=text).partition_bytes_max == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("15 min", 900.0), ("2h", 7200.0)],
)
def test_times_have_units(text, expected):
    found = stream(minOffsetsPerTrigger="5", maxTriggerDelay=text)
    assert (found.trigger_rows_min, found.trigger_delay_s) == (5, expected)
    assert stream(minOffsetsPerTrigger="5").trigger_delay_s == 900.0


def test_group_id_prefix_gives_a_stable_name():
    one, again = (stream(groupIdPrefix="billing").subscription for _ in range(2))
    assert one == again
    assert one.startswith("billing-")
    other = parse_read_options(
        {"subscribe": "/default/b", "groupIdPrefix": "billing"}, Mode.STREAM
    )
    assert other.subscription != one
    assert stream(subscription="billing").subscription == "billing"


def test_a_read_is_bounded_by_times():
    found = batch(
        startingTimestamp="1000",
        endingOffsetsByTimestamp='{"/default/a": {"0": 2000}}',
    )
    assert (found.starting.value, found.starting.is_time) == (1_000_000, True)
    assert not found.starting.allows_future
    assert found.starting.option == "startingTimestamp"
    assert found.ending.by_name == {("/default/a", 0): 2_000_000}
    assert found.ending.allows_future
    lenient = stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting.allows_future


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"/default/a": [0]}'}, "exactly one of"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "set only one of"),
        (
            {"startingOffsetsByTimestampStrategy": "latest"},
            "only with startingTimestamp",
        ),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "x"},
            "error or",
        ),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than max"),
        ({"maxTriggerDelay": "5s"}, "only with minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "500ms, 30s"),
        ({"maxBytesPerTrigger": "0"}, "a number of bytes"),
        ({"maxBytesPerTrigger": "5 parsec"}, "a number of bytes"),
        ({"filter.partitions": "0,x"}, "partition numbers"),
        ({"filter.partitions": ","}, "partition numbers"),
        ({"columns": "offset,offset"}, "each once"),
        ({"columns": " "}, "names of columns"),
        ({"tail": "some"}, "tail: must be broker or none"),
        ({"subscription": "a", "groupIdPrefix": "b"}, "set only one of"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(InvalidConfig, match=message):
        stream(**options)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"/default/a": 0}', '{"/default/a": [-1]}', '{"/default/a": [true]}'],
)
def test_malformed_assignments_are_refused(text):
    with pytest.raises(InvalidConfig, match="assign"):
        parse_read_options({"assign": text}, Mode.STREAM)
