"""Parsing of names."""

from __future__ import annotations

from posixpath import normpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidName
from pydanube.model.names import (
    NAME_BYTES_MAX,
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subject,
    parse_subscription,
)

words = st.from_regex(r"[\w-]{1,20}", fullmatch=True)
dotted = st.lists(words, min_size=1, max_size=4).map(".".join)


@given(words, dotted)
def test_topic_name_round_trips(namespace, topic):
    name = TopicName.parse(f"/{namespace}/{topic}")
    assert (name.namespace, name.topic) == (namespace, topic)
    assert TopicName.parse(str(name)) == name


@given(
    st.text(max_size=20) | st.from_regex(r"/[\w.-]{1,9}/[\w.-]{1,9}", fullmatch=True)
)
def test_any_text_is_a_topic_name_or_invalid(text):
    try:
        parsed = str(TopicName.parse(text))
    except InvalidName:
        return
    assert parsed == text
    assert all(map(is_visible_inside, text.split("/")[1:]))
    # As object stores and file systems see it.
    assert normpath(f"/objects{text}") == f"/objects{text}"


def is_visible_inside(part):
    """Return whether a directory entry *part* is neither hidden nor a way out."""
    return part and not part.startswith(".") and not part.endswith(".")


@given(words, dotted, st.integers(0, 999_999_999))
def test_partition_name_is_valid_and_splits_into_its_base(namespace, topic, number):
    base = TopicName.parse(f"/{namespace}/{topic}")
    partition = TopicName.parse(str(base.partition(number)))
    assert partition.split_partition() == (base, number)


@given(words, st.from_regex(r"[\w.-]{0,9}-part-[\w.]{1,3}", fullmatch=True))
def test_base_of_a_partition_is_a_valid_name(namespace, topic):
    try:
        found = TopicName.parse(f"/{namespace}/{topic}").split_partition()
    except InvalidName:
        return
    if found is not None:
        base, number = found
        assert TopicName.parse(str(base)) == base
        assert base.partition(number).topic == topic


@pytest.mark.parametrize(
    "text",
    ["", "/", "//", "orders", "/orders", "default/orders", "/default/", "//orders",
     "/default/or ders", "/default/orders/", "/a/b/c", "/default/orders\n", "/a.b/c",
     "/a/.", "/a/..", "/a/.b", "/a/b.", "/a/b..c", "/a/b.c\n",
     "/default/" + "a" * (NAME_BYTES_MAX + 1)],
)  # fmt: skip
def test_malformed_topic_name_is_invalid(text):
    with pytest.raises(InvalidName):
        TopicName.parse(text)


def test_names_may_be_long_and_of_any_script():
    long = "ж" * (NAME_BYTES_MAX // 2)
    name = TopicName.parse(f"/default/{long}")
    assert name.topic == long
    assert parse_namespace(long) == long
    assert parse_subscription(long) == long


def test_name_has_at_most_255_bytes():
    long = "é" * (NAME_BYTES_MAX // 2 + 1)
    text = "has 256 bytes in UTF-8; a name has at most 255"
    with pytest.raises(InvalidName, match=f"topic .*{text}"):
        TopicName.parse(f"/default/{long}")
    with pytest.raises(InvalidName, match=f"namespace .*{text}"):
        TopicName.parse(f"/{long}/t")
    with pytest.raises(InvalidName, match=f"namespace .*{text}"):
        parse_namespace(long)
    with pytest.raises(InvalidName, match=f"subscription .*{text}"):
        parse_subscription(long)
    with pytest.raises(InvalidName, match=f"subject .*{text}"):
        parse_subject(long)


def test_name_without_a_base_is_not_a_partition():
    assert TopicName.parse("/default/orders.-part-0").split_partition() is None
    assert TopicName.parse("/default/-part-0").split_partition() is None


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a\n", "a.b", ".", ".."])
def test_malformed_namespace_is_invalid(text):
    with pytest.raises(InvalidName):
        parse_namespace(text)


@pytest.mark.parametrize("text", ["", "a/b", "a\n", "a\0", "a" * (NAME_BYTES_MAX + 1)])
def test_malformed_subscription_or_client_name_is_invalid(text):
    with pytest.raises(InvalidName, match="subscription"):
        parse_subscription(text)
    with pytest.raises(InvalidName, match="consumer"):
        parse_client_name("consumer", text)


def test_subscriptions_and_clients_may_have_spaces_and_dots():
    assert parse_subscription("my billing v1.2") == "my billing v1.2"
    assert parse_client_name("producer", "web-1.example") == "web-1.example"
