"""The bodies of requests to webhooks of chats.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from pydanube.client.messages.messages import Message
from pydanube.model.shown_text import excerpt
from pydanube_connect.sinks.pure.message_templates import fill, template_problem


class ChatService(Enum):
    """A chat with incoming webhooks."""

    SLACK = "slack"
    TEAMS = "teams"
    DISCORD = "discord"


CHARACTERS_MAX = {
    ChatService.SLACK: 40_000,
    ChatService.TEAMS: 20_000,
    ChatService.DISCORD: 2000,
}
"""The longest texts; Teams limits the body to 28 KB."""

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Slack's control characters, with which a text would mention people."""


def body_for(service: ChatService, text: str, message: Message) -> dict[str, Any]:
    """
    Return the body that posts *text*, a template, to a channel.

    What a message contains mentions nobody in Slack and Discord.
    """
    characters_max = CHARACTERS_MAX[service]
    if service is ChatService.SLACK:
        return {"text": excerpt(fill(text, message, _escape), characters_max)}
    shown = excerpt(fill(text, message), characters_max)
    if service is ChatService.DISCORD:
        return {"content": shown, "allowed_mentions": {"parse": []}}
    card = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": shown, "wrap": True}],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": content_type, "content": card}
    return {"type": "message", "attachments": [attachment]}


def filled(structure: Any, message: Message) -> Any:
    """Return *structure* with each text filled as a template."""
    match structure:
        case str():
            return fill(structure, message)
        case dict():
            return {name: filled(each, message) for name, each in structure.items()}
        case list():
            return [filled(each, message) for each in structure]
    return structure


def structure_problem(structure: Any) -> str | None:
    """Return what is wrong with the templates in *structure*, or None."""
    problems = (template_problem(each) for each in _texts_in(structure))
    return next((each for each in problems if each is not None), None)


def _texts_in(structure: Any) -> Iterator[str]:
    match structure:
        case str():
            yield structure
        case dict():
            for each in structure.values():
                yield from _texts_in(each)
        case list():
            for each in structure:
                yield from _texts_in(each)


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
