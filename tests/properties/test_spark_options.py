"""Any options are parsed to consistent values or refused with a broker error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import BrokerError
from pydanube_spark.reader.pure.bounds import EARLIEST, split_name
from pydanube_spark.reader.pure.read_options import OPTIONS, Mode, parse_read_options

numbers = st.one_of(
    st.integers(-3, 10**20).map(str),
    st.sampled_from(["9" * 5000, "٣", "²", "1e3", "0x1", "1_0", "-0", "5m", "5 gb"]),
)
topic_names = st.sampled_from(
    ["/default/a", "/default/a-part-0", "/default/a-part-01", "a", "/x", "/ü/ß", ""]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**80) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | topic_names, inner),
    max_leaves=6,
)
words = st.sampled_from(
    [
        *("earliest", "Latest", "true", "none", "broker", "error", "fail", "null"),
        *("(", "[", "[[", "a{99999999999}", "(" * 500),
        *("2026-01-31T12:00:00Z", "0001-01-01T00:00:00+14:00"),
    ]
)
values = st.one_of(
    st.text(),
    numbers,
    words,
    st.lists(topic_names).map(",".join),
    json_values.map(json.dumps),
    st.dictionaries(topic_names, json_values).map(json.dumps),
)
names = st.sampled_from([each.name for each in OPTIONS]) | st.text()


@given(
    st.dictionaries(names, values),
    st.sampled_from([*Mode, None]),
    st.sampled_from([{}, {"subscribe": "/default/a"}, {"subscribePattern": ".*"}]),
)
def test_options_are_parsed_or_refused_with_a_broker_error(said, mode, what):
    try:
        found = parse_read_options(said | what, mode)
    except BrokerError:
        return
    assert (
        sum(map(bool, (found.topics, found.pattern is not None, found.assigned))) == 1
    )
    assert found.partitions_min is None or found.partitions_min >= 1
    assert found.partition_bytes_max >= 1
    for least in (found.trigger_rows_max, found.trigger_bytes_max):
        assert least is None or least >= 1
    # selects() has a result for every topic.
    assert found.selects("/default/a-part-0") in (True, False)


topics = st.sets(
    st.sampled_from(["/default/a", "/default/b-part-0", "/default/b-part-1", "/x/c"])
)


@given(topics, st.dictionaries(topic_names, json_values))
def test_offsets_fit_the_topics_or_are_refused_with_a_broker_error(there, said):
    options = {"subscribe": "/default/a", "startingOffsets": json.dumps(said)}
    try:
        bound = parse_read_options(options, Mode.STREAM).starting
        found = bound.numbers_for(there)
    except BrokerError:
        return
    assert set(found) == there
    assert all(offset >= EARLIEST for offset in found.values())


@given(
    st.dictionaries(
        st.sampled_from(["/default/a", "/default/b", "/default/c"]),
        st.dictionaries(st.integers(0, 5), st.integers(-2, 10**15), min_size=1),
        min_size=1,
    )
)
def test_offset_of_each_partition_applies_to_it(said):
    text = json.dumps(
        {
            topic: {str(n): at for n, at in parts.items()}
            for topic, parts in said.items()
        }
    )
    options = {"subscribe": ",".join(said), "startingOffsets": text}
    bound = parse_read_options(options, Mode.STREAM).starting
    there = [f"{topic}-part-{n}" for topic, parts in said.items() for n in parts]
    found = bound.numbers_for(there)
    for part in there:
        topic, number = split_name(part)
        assert found[part] == said[topic][number]
