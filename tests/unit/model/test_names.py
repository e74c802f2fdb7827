"""Parsing of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidName
from pydanube.model.names import (
    NAME_BYTES_MAX,
    STORED_CHARACTERS_MAX,
    TopicName,
    check_new_namespace,
    parse_client_name,
    parse_namespace,
    parse_subject,
    parse_subscription,
)

words = st.from_regex(r"[\w-]{1,20}", fullmatch=True)


@given(words, words)
def test_topic_name_round_trips(namespace, topic):
    name = TopicName.parse(f"/{namespace}/{topic}")
    assert (name.namespace, name.topic) == (namespace, topic)
    assert TopicName.parse(str(name)) == name


@given(st.text(max_size=20))
def test_any_text_is_a_topic_name_or_invalid(text):
    try:
        parsed = str(TopicName.parse(text))
    except InvalidName:
        return
    assert parsed == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "//", "orders", "/orders", "default/orders", "/default/", "//orders",
     "/default/or ders", "/default/orders/", "/a/b/c", "/default/orders\n", "/a/b.c",
     "/default/" + "a" * (STORED_CHARACTERS_MAX + 1)],
)  # fmt: skip
def test_malformed_topic_name_is_invalid(text):
    with pytest.raises(InvalidName):
        TopicName.parse(text)


def test_names_may_be_long_and_of_any_script():
    long = "ж" * (NAME_BYTES_MAX // 2)
    name = TopicName.parse(f"/default/{long}")
    name.check_new()
    assert name.topic == long
    assert parse_namespace(long) == long
    check_new_namespace(parse_namespace(long))
    assert parse_subscription(long) == long


def test_name_has_at_most_255_bytes():
    long = "é" * (NAME_BYTES_MAX // 2 + 1)
    text = "has 256 bytes in UTF-8; a name has at most 255"
    with pytest.raises(InvalidName, match=f"topic .*{text}"):
        TopicName.parse(f"/default/{long}").check_new()
    with pytest.raises(InvalidName, match=f"namespace .*{text}"):
        check_new_namespace(parse_namespace(long))
    with pytest.raises(InvalidName, match=f"subscription .*{text}"):
        parse_subscription(long)
    with pytest.raises(InvalidName, match=f"subject .*{text}"):
        parse_subject(long)


def test_partition_name_is_checked_with_its_number():
    base = TopicName.parse("/default/" + "a" * (NAME_BYTES_MAX - 7))
    base.partition(9).check_new()
    with pytest.raises(InvalidName, match="256 bytes"):
        base.partition(10).check_new()


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a\n"])
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
