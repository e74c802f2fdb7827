"""Packets of MQTT survive the way over the wire, and hostile bytes do no harm."""

from __future__ import annotations

from contextlib import suppress

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.encoding import encode
from pydanube_mqtt.wire.packets import V5, PacketError, Ping, Property
from pydanube_mqtt.wire.topics import FilterTree, TopicFilter, TopicTree
from support.fakes.mqtt_packets import VERSIONS, packets, publishes

pytestmark = pytest.mark.slow

BYTES_MAX = 4096
LEVELS = st.sampled_from(["a", "b", "$s", ""])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw):
    levels = draw(st.lists(LEVELS | st.just("+"), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return draw(st.just("/".join(levels)).filter(bool))


@st.composite
def conversations(draw):
    version = draw(VERSIONS)
    sent = draw(st.lists(packets(version), max_size=6))
    cuts = draw(st.lists(st.integers(0, 400), max_size=6))
    return version, sent, sorted(cuts)


def read_in_parts(version, data, cuts):
    """Return the packets of *data*, which arrives in parts."""
    reader, found = PacketReader(BYTES_MAX, version), []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        reader.add(data[begin : max(begin, end)])
        found += reader.packets()
    return reader, found


@given(conversations())
def test_packets_are_read_as_they_were_written_however_they_are_cut(conversation):
    version, sent, cuts = conversation
    data = b"".join(encode(packet, version) for packet in sent)
    cuts = [min(cut, len(data)) for cut in cuts]
    reader, received = read_in_parts(version, data, cuts)
    assert received == sent
    reader.add(encode(Ping(12), version))
    assert list(reader.packets()) == [Ping(12)]


@given(st.data())
def test_a_cut_packet_is_not_read_and_is_no_error(data):
    version = data.draw(VERSIONS)
    whole = encode(data.draw(packets(version)), version)
    reader = PacketReader(BYTES_MAX, version)
    reader.add(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert list(reader.packets()) == []


@given(VERSIONS, st.binary(max_size=300))
def test_random_bytes_are_packets_or_a_violation(version, data):
    reader = PacketReader(BYTES_MAX, version)
    reader.add(data)
    with suppress(PacketError):
        for packet in reader.packets():
            encode(packet, version)


@given(st.data())
def test_damaged_packets_are_packets_or_a_violation(data):
    version = data.draw(VERSIONS)
    damaged = bytearray(encode(data.draw(packets(version)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.integers(0, 255)
        )
    reader = PacketReader(BYTES_MAX, version)
    reader.add(bytes(damaged))
    with suppress(PacketError):
        list(reader.packets())


@given(st.integers(BYTES_MAX, 2**28 - 1))
def test_a_packet_that_is_too_long_is_refused_before_its_body_comes(length):
    written, left = bytearray(b"\x30"), length
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    reader = PacketReader(BYTES_MAX, V5)
    reader.add(bytes(written))
    with pytest.raises(PacketError) as refusal:
        list(reader.packets())
    assert refusal.value.reason.name == "PACKET_TOO_LARGE"


@given(publishes(V5))
def test_another_implementation_reads_the_same_message(sent):
    data = encode(sent, V5)
    read, length = mqtt5.read(memoryview(data).toreadonly())
    assert length == len(data)
    assert (read.topic, bytes(read.payload or b"")) == (sent.topic, sent.payload)
    assert (int(read.qos), read.retain) == (sent.qos, sent.retain)
    assert (read.packet_id or 0) == sent.packet_id
    reader = PacketReader(BYTES_MAX, V5)
    reader.add(read.write())
    (back,) = reader.packets()
    # The other one leaves out what is the default.
    name, value = Property.PAYLOAD_FORMAT_INDICATOR, 0
    back.properties = {name: value} | back.properties
    sent.properties = {name: value} | sent.properties
    assert back == sent


@given(NAMES, st.lists(filters(), max_size=8))
def test_a_tree_finds_the_filters_that_match(topic, texts):
    tree = FilterTree()
    for at, text in enumerate(texts):
        tree.add(TopicFilter.parse(text).levels, at, at)
    expected = [
        at for at, text in enumerate(texts) if TopicFilter.parse(text).matches(topic)
    ]
    assert sorted(tree.match(topic)) == expected
    for at, text in enumerate(texts):
        tree.remove(TopicFilter.parse(text).levels, at)
    assert tree.match(topic) == []
    assert not tree._root.children


@given(st.sets(NAMES, max_size=8), filters())
def test_a_tree_finds_the_topics_that_match(topics, text):
    tree, topic_filter = TopicTree(), TopicFilter.parse(text)
    for topic in topics:
        tree.put(topic, topic)
    found = list(tree.match(topic_filter))
    assert sorted(found) == sorted(
        each for each in topics if topic_filter.matches(each)
    )
    for topic in topics:
        assert tree.pop(topic) == topic
    assert not tree._root.children


@given(NAMES, filters(), filters())
def test_filters_that_match_the_same_topic_overlap(topic, one, two):
    one, two = TopicFilter.parse(one), TopicFilter.parse(two)
    if one.matches(topic) and two.matches(topic):
        assert one.overlaps(two)
        assert two.overlaps(one)
