"""Names are parsed once, and what is parsed is valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidName
from pydanube.model.names import (
    NAME_LENGTH_MAX,
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subscription,
)

words = st.from_regex(r"[\w-]{1,20}", fullmatch=True)


@given(words, words)
def test_a_topic_name_is_what_it_was_parsed_from(namespace, topic):
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
     "/default/" + "a" * (NAME_LENGTH_MAX + 1)],
)  # fmt: skip
def test_a_malformed_topic_name_is_invalid(text):
    with pytest.raises(InvalidName):
        TopicName.parse(text)


def test_names_may_be_long_and_of_any_script():
    long = "ж" * NAME_LENGTH_MAX
    assert TopicName.parse(f"/default/{long}").topic == long
    assert parse_namespace(long) == long
    assert parse_subscription(long) == long


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a\n"])
def test_a_malformed_namespace_is_invalid(text):
    with pytest.raises(InvalidName):
        parse_namespace(text)


@pytest.mark.parametrize("text", ["", "a/b", "a\n", "a\0", "a" * (NAME_LENGTH_MAX + 1)])
def test_a_malformed_subscription_or_client_name_is_invalid(text):
    with pytest.raises(InvalidName, match="subscription"):
        parse_subscription(text)
    with pytest.raises(InvalidName, match="consumer"):
        parse_client_name("consumer", text)


def test_subscriptions_and_clients_may_have_spaces_and_dots():
    assert parse_subscription("my billing v1.2") == "my billing v1.2"
    assert parse_client_name("producer", "web-1.example") == "web-1.example"
