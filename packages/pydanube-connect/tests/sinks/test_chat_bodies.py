"""Tests of the bodies of requests to chats."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from pydanube_connect.sinks.pure.chat_bodies import (
    CHARACTERS_MAX,
    ChatService,
    body_for,
    filled,
    structure_problem,
)


def message_of(payload):
    return SimpleNamespace(
        topic="/default/alerts",
        offset=7,
        payload=payload,
        key_bytes=b"k",
        publish_time=datetime(2026, 1, 2, tzinfo=UTC),
    )


ALERT = message_of(b'{"text": "<!channel> @everyone & more", "n": 5}')


def test_slack_gets_a_text_in_which_messages_mention_nobody():
    found = body_for(ChatService.SLACK, "*{topic}* <!here> {value.text}", ALERT)
    assert found == {
        "text": "*/default/alerts* <!here> &lt;!channel&gt; @everyone &amp; more"
    }


def test_discord_gets_a_content_that_mentions_nobody():
    found = body_for(ChatService.DISCORD, "{value.text}", ALERT)
    assert found["content"] == "<!channel> @everyone & more"
    assert found["allowed_mentions"] == {"parse": []}


def test_teams_gets_an_adaptive_card():
    found = body_for(ChatService.TEAMS, "{value.n}", ALERT)
    [attachment] = found["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["content"]["body"][0]["text"] == "5"


@pytest.mark.parametrize("service", ChatService)
def test_long_texts_are_cut(service):
    payload = b"x" * 100_000
    found = str(body_for(service, "{payload}", message_of(payload)))
    assert 0 < found.count("x") < CHARACTERS_MAX[service] + 10
    assert "\u2026" in found


def test_texts_anywhere_in_a_structure_are_templates():
    structure = {"a": ["{value.n}", 1, None, {"b": "{key}"}]}
    assert structure_problem(structure) is None
    assert filled(structure, ALERT) == {"a": ["5", 1, None, {"b": "k"}]}
    assert "stands for nothing" in structure_problem({"a": [{"b": "{what}"}]})
